// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc load` and `unload` on the running kernel, with real connections.

use crate::cc_host::*;
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use longhaul_testnet::namespace::Namespace;
use longhaul_testprograms::{process::exit_code_and_text, skip::may_load_bpf, wait::wait_until};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    process::Stdio,
    time::Duration,
};

const MIB: usize = 1 << 20;

#[test]
fn connection_in_another_namespace_survives_unload() {
    if !may_watch() {
        return;
    }
    let (host, there) = (Host::new(), Namespace::new("stranger"));
    assert_eq!(
        host.output_of(&["load", "scalable"]),
        "lh_scalable: loaded, ai=100 md_shift=3\n"
    );
    let stranger = UnprivilegedThread::in_namespace(&there);
    let port = stranger.run(|place| {
        let mut connection = Connection::open(Some(NAME)).unwrap();
        connection.transfer(MIB);
        place.insert(connection).port()
    });

    let seen = host.watch_port(port).expect("it is watched");
    let inode = std::fs::metadata(format!("/run/netns/{}", there.name()))
        .unwrap()
        .ino();
    assert_eq!(seen["netns"], json!(inode));
    assert_eq!(seen["cc"], NAME);
    assert_eq!(seen["parameters"], json!({ "ai": 100, "md_shift": 3 }));
    assert!(seen["cwnd"].as_u64().unwrap() >= 10, "{seen}");
    // The handshake is acknowledged too.
    assert_eq!(seen["bytes_acked"], json!(MIB + 1));
    assert!(seen["pacing_rate_bps"].as_u64().unwrap() > 0);

    let message = host.output_of(&["unload", "scalable"]);
    assert!(
        message.contains("keep it until closed") || message.contains("keeps it"),
        "{message}"
    );
    assert!(!is_registered());
    stranger.run(|place| place.as_mut().unwrap().transfer(8 * MIB));
    let refused = stranger.run(|_| Connection::open(Some(NAME)).map(drop));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    stranger.run(|place| drop(place.take()));
    wait_until(|| kernel_objects().programs.is_empty());
}

#[test]
fn each_algorithm_transfers_data_and_shows_its_state() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    let listed: Vec<Value> = serde_json::from_str(&host.output_of(&["list", "--json"])).unwrap();
    let names = listed.iter().filter(|entry| entry["origin"] == "longhaul");
    let names: Vec<&str> = names.map(|entry| entry["name"].as_str().unwrap()).collect();
    host.output_of(&[&["load"], &names[..]].concat());
    for name in names {
        let shown: Value =
            serde_json::from_str(&host.output_of(&["show", name, "--json"])).unwrap();
        let mut connection = Connection::open(Some(name)).unwrap();
        connection.transfer(MIB);
        let seen = host.watch_port(connection.port()).unwrap();
        assert_eq!(seen["cc"], name);
        assert_eq!(seen["parameters"], shown["loaded"]["parameters"], "{name}");
        let fields = shown["state_fields"].as_array().unwrap();
        let fields = fields.iter().map(|field| field["name"].as_str().unwrap());
        let own = seen["cc_state"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str);
        assert!(fields.collect::<BTreeSet<_>>() == own.collect(), "{seen}");
        let programs = shown["loaded"]["programs"].as_array().unwrap();
        assert!(programs.len() >= 5, "{programs:?}");
        assert!(
            programs
                .iter()
                .all(|program| program["verified"].as_u64() > Some(0))
        );
    }
}

#[test]
fn does_not_read_state_of_another_build() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    host.output_of(&["load", "scalable"]);
    let mut connection = Connection::open(Some(NAME)).unwrap();
    // A link with another checksum, as if the state's fields had other offsets.
    let layout = host.bpffs().join("longhaul/cc/scalable/layout");
    std::fs::remove_file(&layout).unwrap();
    std::os::unix::fs::symlink("0123456789abcdef", layout).unwrap();
    let seen = host.watch_port(connection.port()).unwrap();
    assert!(seen["cwnd"].is_u64());
    assert!(
        seen.get("cc_state").is_none() && seen.get("parameters").is_none(),
        "{seen}"
    );
    assert!(
        host.output_of(&["watch", "--once"])
            .contains("loaded by another longhaul")
    );
    let (code, message) = host.cc(&["load", "scalable"]);
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("another longhaul"), "{message}");
    let message = host.output_of(&["load", "scalable", "--replace"]);
    assert!(message.contains("can no longer be watched"), "{message}");
    assert!(host.watch_port(connection.port()).is_none());
    connection.transfer(MIB);
    let new = Connection::open(Some(NAME)).unwrap();
    assert_eq!(
        host.watch_port(new.port()).unwrap()["parameters"]["ai"],
        100
    );
}

#[test]
fn watch_applies_the_filter() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    let (code, message) = host.cc(&["watch", "scalable", "--once"]);
    assert_eq!(code, 1, "{message}");
    host.output_of(&["load", "scalable"]);
    let one = Connection::open(Some(NAME)).unwrap();
    let _other = Connection::open(Some(NAME)).unwrap();
    let count = |filter: &str| {
        let message =
            host.output_of(&["watch", "scalable", "--once", "--json", "--filter", filter]);
        message.lines().count()
    };
    assert_eq!(count(&format!("sport {}", one.port())), 1);
    assert_eq!(
        count(&format!("sport {} and dst 10.0.0.0/8", one.port())),
        0
    );
    assert!(count("src 127.0.0.0/8") >= 2);
}

#[test]
fn hundred_loads_leave_nothing_behind() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    let before = kernel_objects();
    for _ in 0..100 {
        host.output_of(&["load", "scalable"]);
        Connection::open(Some(NAME)).unwrap().transfer(64 << 10);
        host.output_of(&["unload", "scalable"]);
        assert!(!host.is_mounted());
    }
    wait_until(|| before.contains(&kernel_objects()));
}

#[test]
fn replace_changes_parameters_of_new_connections_only() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    host.output_of(&["load", "scalable", "--param", "ai=50"]);
    let mut old = Connection::open(Some(NAME)).unwrap();
    assert_eq!(
        host.output_of(&["load", "lh_scalable", "--param", "ai=50"]),
        "lh_scalable: already loaded, ai=50 md_shift=3\n"
    );
    let (code, message) = host.cc(&["load", "scalable", "--param", "ai=60"]);
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("--replace"), "{message}");

    host.output_of(&["load", "scalable", "--param", "ai=60", "--replace"]);
    let mut new = Connection::open(Some(NAME)).unwrap();
    old.transfer(MIB);
    new.transfer(MIB);
    let ai = |connection: &Connection| {
        host.watch_port(connection.port()).unwrap()["parameters"]["ai"].clone()
    };
    assert_eq!((ai(&old), ai(&new)), (json!(50), json!(60)));
    assert_eq!(host.show()["loaded"]["parameters"]["ai"], 60);
}

#[test]
fn concurrent_loads_load_once() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    let start = |_| {
        host.command(&["load", "scalable"])
            .stdout(Stdio::piped())
            .spawn()
    };
    let all: Vec<_> = (0..6).map(start).collect();
    let message: Vec<_> = all
        .into_iter()
        .map(|child| exit_code_and_text(&child.unwrap().wait_with_output().unwrap()))
        .collect();
    assert!(message.iter().all(|(code, _)| *code == 0), "{message:?}");
    let loads = message
        .iter()
        .filter(|(_, text)| text.starts_with("lh_scalable: loaded"));
    assert_eq!(loads.count(), 1, "{message:?}");
}

#[test]
fn next_load_recovers_from_a_killed_load() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    for delay_us in (0..40_000).step_by(3_000) {
        let args = ["load", "scalable", "--param", "ai=70"];
        let mut load = host.command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(delay_us));
        load.kill().unwrap();
        load.wait().unwrap();
        host.output_of(&["load", "scalable", "--param", "ai=70"]);
        assert_eq!(
            host.pins().len(),
            1,
            "after {delay_us} us: {:?}",
            host.pins()
        );
        host.output_of(&["unload", "scalable"]);
        assert!(!is_registered());
    }
}

#[test]
fn unloads_an_incomplete_load() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    host.output_of(&["load", "scalable"]);
    let cc = host.bpffs().join("longhaul/cc");
    std::fs::rename(cc.join("scalable"), cc.join("new-scalable")).unwrap();
    assert!(is_registered());
    host.output_of(&["unload", "scalable"]);
    assert!(!is_registered() && !host.is_mounted());

    // A load of which only the maps exist.
    host.output_of(&["load", "scalable"]);
    std::fs::remove_file(cc.join("scalable/link")).unwrap();
    wait_until(|| !is_registered());
    host.output_of(&["load", "scalable"]);
    Connection::open(Some(NAME)).unwrap().transfer(MIB);
}

#[test]
fn show_matches_new_connections_after_a_killed_replace() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    host.output_of(&["load", "scalable", "--param", "ai=1"]);
    for (round, delay_us) in (0..40_000).step_by(3_000).enumerate() {
        let parameters = format!("ai={}", round + 2);
        let args = ["load", "scalable", "--replace", "--param", &parameters];
        let mut load = host.command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(delay_us));
        load.kill().unwrap();
        load.wait().unwrap();
        // This load first recovers the pins, whether it succeeds or not.
        host.cc(&["load", "scalable", "--param", "ai=9999"]);
        assert_eq!(
            host.pins().len(),
            1,
            "after {delay_us} us: {:?}",
            host.pins()
        );
        let connection = Connection::open(Some(NAME)).unwrap();
        let got = host.watch_port(connection.port()).unwrap()["parameters"]["ai"].clone();
        assert_eq!(
            host.show()["loaded"]["parameters"]["ai"],
            got,
            "after {delay_us} us"
        );
    }
}

#[test]
fn restores_default_but_not_one_set_by_others() {
    if !may_watch() {
        return;
    }
    const SETTING: &str = "net.ipv4.tcp_congestion_control";
    let (host, there) = (Host::new(), Namespace::new("default"));
    let get = || longhaul_linux::sysctl::read(&there, SETTING).unwrap();
    let set = |name| longhaul_linux::sysctl::write(&there, SETTING, name).unwrap();
    let inside = |args: &[&str]| {
        let mut command = host.command(args);
        let command = longhaul_linux::process::inside(&mut command, &there);
        exit_code_and_text(&command.output().unwrap())
    };
    set("reno");
    assert_eq!(inside(&["load", "scalable", "--default"]).0, 0);
    assert_eq!(get(), NAME);
    let stranger = UnprivilegedThread::in_namespace(&there);
    let port = stranger.run(|place| place.insert(Connection::open(None).unwrap()).port());
    assert_eq!(
        host.watch_port(port).expect("its default is watched")["cc"],
        NAME
    );

    let (code, message) = host.cc(&["unload", "scalable"]);
    assert_eq!(code, 1, "from the wrong namespace: {message}");
    assert!(
        message.contains(there.name()) && is_registered(),
        "{message}"
    );
    let (code, message) = inside(&["unload", "scalable"]);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("the default is reno again"), "{message}");
    assert_eq!(get(), "reno");

    host.output_of(&["load", "scalable"]);
    set(NAME);
    let (code, message) = inside(&["unload", "scalable"]);
    assert_eq!(code, 1, "{message}");
    assert!(
        message.contains("another program") && is_registered(),
        "{message}"
    );
    set("reno");
}

#[test]
fn load_inside_ip_netns_exec_persists_or_is_refused() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    // `ip netns exec` hides mounts below /sys in this way.
    let load_below_own_mount = || {
        let script = r#"mount -t tmpfs none "$2" && exec "$1" cc load scalable --bpffs "$2""#;
        let mut command = std::process::Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            longhaul_testprograms::longhaul(),
        ]);
        exit_code_and_text(&command.arg(host.bpffs()).output().unwrap())
    };
    let (code, message) = load_below_own_mount();
    assert_eq!(code, 3, "{message}");
    assert!(
        message.contains("mounts of its own") && !is_registered(),
        "{message}"
    );

    rustix::mount::mount(
        "bpf",
        host.bpffs(),
        "bpf",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    let (code, message) = load_below_own_mount();
    assert_eq!(code, 0, "{message}");
    assert!(is_registered());
    host.output_of(&["unload", "scalable"]);
    assert!(host.is_mounted(), "it was not longhaul's");
}

/// Runs `script` by a shell in a mount namespace of its own, with the binary and the directory of pins as `$1` and
/// `$2`. The shell stays the parent of the commands.
fn in_own_mount_namespace(host: &Host, script: &str) -> (i32, String) {
    let script = format!("{script}; exit $?");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command
        .arg(longhaul_testprograms::longhaul())
        .arg(host.bpffs());
    exit_code_and_text(&command.output().unwrap())
}

#[test]
fn load_below_a_mount_that_ends_with_the_command_is_refused() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    for (script, reason) in [
        (r#""$1" cc load scalable --bpffs "$2""#, "is not mounted"),
        (
            r#"mount -t bpf bpf "$2"; "$1" cc load scalable --bpffs "$2""#,
            "is mounted in them alone",
        ),
    ] {
        let (code, message) = in_own_mount_namespace(&host, script);
        assert_eq!(code, 3, "{script}: {message}");
        assert!(message.contains(reason), "{script}: {message}");
        assert!(!is_registered(), "{script}");
    }
    // One that is mounted outside is the same inside.
    host.output_of(&["load", "trc"]);
    let load = r#""$1" cc load scalable --bpffs "$2""#;
    let (code, message) = in_own_mount_namespace(&host, load);
    assert_eq!(code, 0, "{message}");
    assert!(is_registered());
    let unload = r#""$1" cc unload scalable --bpffs "$2""#;
    let (code, message) = in_own_mount_namespace(&host, unload);
    assert_eq!(code, 0, "{message}");
    assert!(!is_registered());
    host.output_of(&["unload", "trc"]);
}

#[test]
fn refuses_a_name_that_is_taken() {
    if !may_load_bpf() {
        return;
    }
    let host = Host::new();
    host.output_of(&["load", "scalable"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let run_elsewhere = |command_name| {
        let mut command = std::process::Command::new(longhaul_testprograms::longhaul());
        command
            .args(["cc", command_name, "scalable", "--bpffs"])
            .arg(elsewhere.path());
        exit_code_and_text(&command.output().unwrap())
    };
    let (code, message) = run_elsewhere("load");
    assert_eq!((code, message.lines().count()), (3, 1), "{message}");
    assert!(message.contains("lh_scalable is taken"), "{message}");
    assert!(
        std::fs::read_dir(elsewhere.path())
            .unwrap()
            .next()
            .is_none()
    );
    let (code, message) = run_elsewhere("unload");
    assert_eq!(code, 1, "{message}");
    assert!(is_registered());
}

#[test]
fn sets_parameters_of_a_single_socket() {
    if !may_watch() {
        return;
    }
    let host = Host::new();
    let cgroup = longhaul_linux::cgroup::own().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), cgroup.as_raw_fd());
    host.output_of(&["load", "scalable", "--per-socket", &path]);
    let described = host.show();
    let level = i32::try_from(described["socket_option_level"].as_i64().unwrap()).unwrap();
    let option = i32::try_from(
        described["parameters"][0]["socket_option"]
            .as_i64()
            .unwrap(),
    )
    .unwrap();

    let set = |socket: &socket2::Socket, value| {
        longhaul_linux::socket::set_u32_option(socket, level, option, value)
    };
    let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (listener, sender) = (socket().unwrap(), socket().unwrap());
    assert!(set(&sender, 0).is_err(), "below its range");
    assert!(set(&sender, 10_001).is_err(), "above it");
    for (socket, ai) in [(&listener, 66), (&sender, 77)] {
        set(socket, ai).unwrap();
        rustix::net::sockopt::set_tcp_congestion(socket, NAME).unwrap();
    }
    listener.bind(&any.into()).unwrap();
    listener.listen(1).unwrap();
    sender.connect(&listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    for (socket, ai) in [(&accepted, 66), (&sender, 77)] {
        // Listeners are not watched, so the accepted socket stands for its listener.
        let end = socket.local_addr().unwrap().as_socket().unwrap();
        let parameters = host.watch_port(end.port()).unwrap()["parameters"].clone();
        assert_eq!(parameters, json!({ "ai": ai, "md_shift": 3 }));
    }
    host.output_of(&["unload", "scalable"]);
    assert!(set(&sender, 77).is_err(), "the option went with it");
}

/// Kernel objects of longhaul's congestion controls, by their identifiers. The kernel never reuses an
/// identifier.
#[derive(Debug)]
struct KernelObjects {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

fn kernel_objects() -> KernelObjects {
    let programs = ProgInfoIter::default().filter(|program| {
        let name = program.name.to_string_lossy();
        name.starts_with("scalable_") || name == "watch" || name == "own_parameters"
    });
    let maps = MapInfoIter::default().filter(|map| {
        let name = map.name.to_string_lossy();
        name == NAME || name == "connections"
    });
    let links = LinkInfoIter::default();
    let links = links.filter(|link| matches!(link.info, LinkTypeInfo::StructOps(_)));
    KernelObjects {
        programs: programs.map(|program| program.id).collect(),
        maps: maps.map(|map| map.id).collect(),
        links: links.map(|link| link.id).collect(),
    }
}

impl KernelObjects {
    fn contains(&self, other: &Self) -> bool {
        other.programs.is_subset(&self.programs)
            && other.maps.is_subset(&self.maps)
            && other.links.is_subset(&self.links)
    }
}
