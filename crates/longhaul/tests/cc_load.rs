// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc load` and `unload` on the running kernel, with real connections.

mod cc_host;

use cc_host::*;
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use serde_json::json;
use std::{
    collections::BTreeSet,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    process::Stdio,
    time::Duration,
};

const MIB: usize = 1 << 20;

#[test]
fn a_stranger_in_another_namespace_uses_it_and_keeps_it_after_unload() {
    if !may_load() {
        return;
    }
    let (host, there) = (Host::new(), Namespace::new("stranger"));
    assert_eq!(
        host.done(&["load", "scalable"]),
        "lh_scalable: loaded, ai=100 md_shift=3\n"
    );
    let stranger = Stranger::in_namespace(&there.netns);
    let port = stranger.does(|place| {
        let mut connection = Connection::open(Some(NAME)).unwrap();
        connection.transfer(MIB);
        place.insert(connection).port()
    });

    let seen = host.watched(port).expect("it is watched");
    let inode = std::fs::metadata(format!("/run/netns/{}", there.name))
        .unwrap()
        .ino();
    assert_eq!(seen["netns"], json!(inode));
    assert_eq!(seen["cc"], NAME);
    assert_eq!(seen["parameters"], json!({ "ai": 100, "md_shift": 3 }));
    assert!(seen["cwnd"].as_u64().unwrap() >= 10, "{seen}");
    // The handshake is acknowledged too.
    assert_eq!(seen["bytes_acked"], json!(MIB + 1));
    assert!(seen["pacing_rate_bps"].as_u64().unwrap() > 0);

    let said = host.done(&["unload", "scalable"]);
    assert!(
        said.contains("keep it until closed") || said.contains("keeps it"),
        "{said}"
    );
    assert!(!is_registered());
    stranger.does(|place| place.as_mut().unwrap().transfer(8 * MIB));
    let refused = stranger.does(|_| Connection::open(Some(NAME)).map(drop));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    stranger.does(|place| drop(place.take()));
    wait_until("its programs went with the last connection", || {
        ours().programs.is_empty()
    });
}

#[test]
fn nothing_is_left_of_a_hundred_loads() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    let before = ours();
    for _ in 0..100 {
        host.done(&["load", "scalable"]);
        Connection::open(Some(NAME)).unwrap().transfer(64 << 10);
        host.done(&["unload", "scalable"]);
        assert!(!host.is_mounted());
    }
    wait_until("all programs, maps and links are gone", || {
        before.contains(&ours())
    });
}

#[test]
fn a_second_load_says_what_is_there_and_replace_changes_it_for_new_connections() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    host.done(&["load", "scalable", "--param", "ai=50"]);
    let mut old = Connection::open(Some(NAME)).unwrap();
    assert_eq!(
        host.done(&["load", "lh_scalable", "--param", "ai=50"]),
        "lh_scalable: already loaded, ai=50 md_shift=3\n"
    );
    let (code, said) = host.cc(&["load", "scalable", "--param", "ai=60"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("--replace"), "{said}");

    host.done(&["load", "scalable", "--param", "ai=60", "--replace"]);
    let mut new = Connection::open(Some(NAME)).unwrap();
    old.transfer(MIB);
    new.transfer(MIB);
    let ai = |connection: &Connection| {
        host.watched(connection.port()).unwrap()["parameters"]["ai"].clone()
    };
    assert_eq!((ai(&old), ai(&new)), (json!(50), json!(60)));
    assert_eq!(host.show()["loaded"]["parameters"]["ai"], 60);
}

#[test]
fn of_loads_at_once_one_loads() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    let start = |_| {
        host.command(&["load", "scalable"])
            .stdout(Stdio::piped())
            .spawn()
    };
    let all: Vec<_> = (0..6).map(start).collect();
    let said: Vec<_> = all
        .into_iter()
        .map(|child| ended(&child.unwrap().wait_with_output().unwrap()))
        .collect();
    assert!(said.iter().all(|(code, _)| *code == 0), "{said:?}");
    let loads = said
        .iter()
        .filter(|(_, text)| text.starts_with("lh_scalable: loaded"));
    assert_eq!(loads.count(), 1, "{said:?}");
}

#[test]
fn a_load_that_was_killed_is_put_right_by_the_next() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    for delay_us in (0..40_000).step_by(1_500) {
        let args = ["load", "scalable", "--param", "ai=70"];
        let mut load = host.command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(delay_us));
        load.kill().unwrap();
        load.wait().unwrap();
        host.done(&["load", "scalable", "--param", "ai=70"]);
        assert_eq!(
            host.pins().len(),
            1,
            "after {delay_us} us: {:?}",
            host.pins()
        );
        host.done(&["unload", "scalable"]);
        assert!(!is_registered());
    }
}

#[test]
fn a_load_that_was_cut_short_before_it_got_its_name_is_unloaded() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    host.done(&["load", "scalable"]);
    let cc = host.bpffs().join("longhaul/cc");
    std::fs::rename(cc.join("scalable"), cc.join("new-scalable")).unwrap();
    assert!(is_registered());
    host.done(&["unload", "scalable"]);
    assert!(!is_registered() && !host.is_mounted());

    // And one of which only the maps were there.
    host.done(&["load", "scalable"]);
    std::fs::remove_file(cc.join("scalable/link")).unwrap();
    wait_until("the kernel forgot it", || !is_registered());
    host.done(&["load", "scalable"]);
    Connection::open(Some(NAME)).unwrap().transfer(MIB);
}

#[test]
fn what_show_says_is_what_new_connections_get_wherever_a_replacement_was_killed() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    host.done(&["load", "scalable", "--param", "ai=1"]);
    for (round, delay_us) in (0..40_000).step_by(1_500).enumerate() {
        let told = format!("ai={}", round + 2);
        let args = ["load", "scalable", "--replace", "--param", &told];
        let mut load = host.command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(delay_us));
        load.kill().unwrap();
        load.wait().unwrap();
        // Whatever it answers, it looks at what it finds first.
        host.cc(&["load", "scalable", "--param", "ai=9999"]);
        assert_eq!(
            host.pins().len(),
            1,
            "after {delay_us} us: {:?}",
            host.pins()
        );
        let connection = Connection::open(Some(NAME)).unwrap();
        let got = host.watched(connection.port()).unwrap()["parameters"]["ai"].clone();
        assert_eq!(
            host.show()["loaded"]["parameters"]["ai"],
            got,
            "after {delay_us} us"
        );
    }
}

#[test]
fn a_default_is_put_back_and_somebody_elses_is_respected() {
    if !may_load() {
        return;
    }
    const SETTING: &str = "net.ipv4.tcp_congestion_control";
    let (host, there) = (Host::new(), Namespace::new("default"));
    let get = || host::sysctl::read(&there.netns, SETTING).unwrap();
    let set = |name| host::sysctl::write(&there.netns, SETTING, name).unwrap();
    let inside = |args: &[&str]| {
        let mut command = host.command(args);
        ended(
            &host::process::inside(&mut command, &there.netns)
                .output()
                .unwrap(),
        )
    };
    set("reno");
    assert_eq!(inside(&["load", "scalable", "--default"]).0, 0);
    assert_eq!(get(), NAME);
    let stranger = Stranger::in_namespace(&there.netns);
    let port = stranger.does(|place| place.insert(Connection::open(None).unwrap()).port());
    assert_eq!(host.watched(port).expect("it did not choose")["cc"], NAME);

    let (code, said) = host.cc(&["unload", "scalable"]);
    assert_eq!(code, 1, "from the wrong namespace: {said}");
    assert!(said.contains(&there.name) && is_registered(), "{said}");
    let (code, said) = inside(&["unload", "scalable"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("the default is reno again"), "{said}");
    assert_eq!(get(), "reno");

    host.done(&["load", "scalable"]);
    set(NAME);
    let (code, said) = inside(&["unload", "scalable"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("somebody else") && is_registered(), "{said}");
    set("reno");
}

#[test]
fn a_name_that_is_taken_is_left_alone() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    host.done(&["load", "scalable"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let with = |what| {
        let mut command = std::process::Command::new(BINARY);
        command
            .args(["cc", what, "scalable", "--bpffs"])
            .arg(elsewhere.path());
        ended(&command.output().unwrap())
    };
    let (code, said) = with("load");
    assert_eq!((code, said.lines().count()), (3, 1), "{said}");
    assert!(said.contains("lh_scalable is taken"), "{said}");
    assert!(
        std::fs::read_dir(elsewhere.path())
            .unwrap()
            .next()
            .is_none()
    );
    let (code, said) = with("unload");
    assert_eq!(code, 1, "{said}");
    assert!(is_registered());
}

#[test]
fn one_socket_has_parameters_of_its_own() {
    if !may_load() {
        return;
    }
    let host = Host::new();
    let cgroup = host::cgroup::own().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), cgroup.as_raw_fd());
    host.done(&["load", "scalable", "--per-socket", &path]);
    let described = host.show();
    let level = i32::try_from(described["option_level"].as_i64().unwrap()).unwrap();
    let option = i32::try_from(described["parameters"][0]["option"].as_i64().unwrap()).unwrap();

    let set =
        |socket: &socket2::Socket, value| host::socket::set_number(socket, level, option, value);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    assert!(set(&socket, 0).is_err(), "below its range");
    assert!(set(&socket, 10_001).is_err(), "above it");
    set(&socket, 77).unwrap();
    rustix::net::sockopt::set_tcp_congestion(&socket, NAME).unwrap();
    socket
        .connect(&listener.local_addr().unwrap().into())
        .unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    assert_eq!(
        host.watched(port).unwrap()["parameters"],
        json!({ "ai": 77, "md_shift": 3 })
    );
    host.done(&["unload", "scalable"]);
    assert!(set(&socket, 77).is_err(), "the option went with it");
}

/// What the kernel holds for congestion controls of ours, by identifiers, which it does not use
/// twice.
#[derive(Debug)]
struct Ours {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

fn ours() -> Ours {
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
    Ours {
        programs: programs.map(|program| program.id).collect(),
        maps: maps.map(|map| map.id).collect(),
        links: links.map(|link| link.id).collect(),
    }
}

impl Ours {
    fn contains(&self, other: &Self) -> bool {
        other.programs.is_subset(&self.programs)
            && other.maps.is_subset(&self.maps)
            && other.links.is_subset(&self.links)
    }
}
