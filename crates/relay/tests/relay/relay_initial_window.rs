// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initial windows and ECN: both kinds of legs use them, other sockets do not, and a killed relay
//! leaves nothing attached.

use longhaul_congestion::sockets::initial_window;
use longhaul_linux::{cgroup, netns::Netns, process::inside, tcp_info::TcpInfo};
use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, dial, listen_as_origin, may_use_namespaces, read_array,
    transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{BOTH, Testbed, run_with_input};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    ops::RangeInclusive,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
    time::Instant,
};

const ANY: &str = "127.0.0.1:0";
/// Flags with reno, which changes a window as little as possible.
const WINDOWS: [&str; 8] = [
    "--initial-window-downstream",
    "33",
    "--initial-window-upstream",
    "64",
    "--cc-downstream",
    "reno",
    "--cc-upstream",
    "reno",
];

fn window(leg: &TcpStream) -> u32 {
    TcpInfo::of(leg).unwrap().cwnd_segments
}

/// Range of a window that began with `segments`: the first data may be acknowledged already.
fn window_range(segments: u32) -> RangeInclusive<u32> {
    segments..=segments + 3
}

fn assert_window(leg: &TcpStream, segments: u32, owner: &str) {
    let window = window(leg);
    assert!(
        window_range(segments).contains(&window),
        "{owner}: {window}"
    );
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.arg("relay").args(args).args(WINDOWS);
    command
}

/// Whether the test may use BPF, which needs the machine's root: user namespaces have none. Other
/// causes fail the test, unless ALLOW_SKIP is 1.
fn may_use_bpf() -> bool {
    if !may_use_namespaces() {
        return false;
    }
    let missing = initial_window::attach().err();
    let missing = missing.map(|error| error.to_string());
    longhaul_testprograms::skip::require_privileged(missing.is_none(), missing.unwrap_or_default())
}

#[test]
fn sets_windows_of_accepted_and_outgoing_legs() {
    if !may_use_bpf() {
        return;
    }
    let (listener, address) = listen_as_origin();
    let far = Relay::spawn(command(&["--convert", ANY]));
    let peer = far.address("convert").to_string();
    let forward = format!("{ANY}={address}");
    let all = [
        "--socks5",
        ANY,
        "--http",
        ANY,
        "--convert",
        ANY,
        "--forward",
        &forward,
    ];
    for peers in [&[][..], &["--peer", &peer]] {
        let near = Relay::spawn(command(&[&all, peers].concat()));
        for kind in ["socks5", "http", "convert", "forward"] {
            let to = Destination::Address(address);
            let client = dial(kind, near.address(kind), &to).unwrap();
            let server = accept(&listener);
            assert_window(&near.socket_to(client.local_addr().unwrap()), 33, kind);
            let last = if peers.is_empty() { &near } else { &far };
            assert_window(&last.socket_to(server.local_addr().unwrap()), 64, kind);
            if !peers.is_empty() {
                let long = near.socket_to(far.address("convert"));
                assert_window(&long, 64, "to the peer");
                let other = far.socket_to(long.local_addr().unwrap());
                assert_window(&other, 33, "from the peer");
            }
            // Client and server are in the same cgroup; a handshake may let their windows grow a
            // little.
            assert!(window(&client) < 33, "the client's: {}", window(&client));
            assert_window(&server, 10, "the server's");
            transfer_both_ways(&client, &server, 1);
        }
    }
}

#[test]
fn keeps_kernel_default_without_profile_window() {
    if !may_use_bpf() {
        return;
    }
    let (listener, address) = listen_as_origin();
    let forward = format!("{ANY}={address}");
    let args = [
        "relay",
        "--forward",
        &forward,
        "--initial-window-upstream",
        "64",
    ];
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(args);
    let relay = Relay::spawn(command);
    let client = connect(relay.address("forward"));
    let server = accept(&listener);
    assert_window(&relay.socket_to(client.local_addr().unwrap()), 10, "near");
    assert_window(&relay.socket_to(server.local_addr().unwrap()), 64, "far");
}

/// A pooled leg that was idle for longer than a retransmission time-out, after which reno resets
/// its window: the kernel would use 10.
#[test]
fn pooled_leg_keeps_initial_window() {
    if !may_use_bpf() {
        return;
    }
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let forward = format!("{ANY}={address}");
    let ready = ["--peer", &peer, "--peer-pool", "1", "--workers", "1"];
    let near = Relay::spawn(command(&[&["--forward", &forward], &ready[..]].concat()));
    let long = near.socket_to(far.address("convert"));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let mut client = connect(near.address("forward"));
    client.write_all(b"x").unwrap();
    assert_eq!(read_array(&mut accept(&listener)), *b"x");
    assert_window(&long, 64, "the ready leg");
}

/// Cgroup below this process's own, removed on drop.
struct NestedCgroup {
    parent: OwnedFd,
    name: String,
    directory: OwnedFd,
}

impl NestedCgroup {
    fn new() -> Self {
        let parent = cgroup::own().unwrap();
        let name = format!("longhaul-test-{}", std::process::id());
        mkdirat(&parent, &name, Mode::RWXU).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&parent, &name, flags, Mode::empty()).unwrap();
        Self {
            parent,
            name,
            directory,
        }
    }

    /// Starts a relay in the cgroup, and in its own network and mount namespaces without a mounted
    /// cgroup (as `ip netns exec` makes them). The relay listens on loopback.
    fn relay(&self, destination: SocketAddr) -> Relay {
        let longhaul = longhaul_testprograms::longhaul();
        let here = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.directory.as_raw_fd()
        );
        let script = format!(
            "echo $$ >{here}/cgroup.procs; umount -l /sys; mount -t sysfs none /sys; \
             ip link set lo up; exec {longhaul} relay \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-ec", &script, "sh"]);
        command.args(["--forward", &format!("{ANY}={destination}")]);
        command.args(WINDOWS);
        Relay::spawn(command)
    }

    fn programs(&self) -> usize {
        initial_window::attached_to(&self.directory).unwrap()
    }
}

impl Drop for NestedCgroup {
    fn drop(&mut self) {
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

#[test]
fn works_in_nested_cgroup_and_detaches_after_sigkill() {
    if !may_use_bpf() {
        return;
    }
    let nested = NestedCgroup::new();
    let destination: SocketAddr = "127.0.0.1:8080".parse().unwrap();
    let relay = nested.relay(destination);
    assert_eq!(nested.programs(), 1);
    let join = || {
        let listener = TcpListener::bind(destination)?;
        let client = connect(relay.address("forward"));
        Ok((client, accept(&listener)))
    };
    let netns = Netns::of_process(relay.pid().as_raw_pid() as u32).unwrap();
    let (client, server) = netns.run(join).unwrap();
    assert_window(&relay.socket_to(client.local_addr().unwrap()), 33, "near");
    assert_window(&relay.socket_to(server.local_addr().unwrap()), 64, "far");
    relay.signal(rustix::process::Signal::KILL);
    let _ = relay.wait();
    let start = Instant::now();
    while nested.programs() > 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "still attached");
    }
}

#[test]
fn reports_missing_rights_only_if_profile_needs_them() {
    if !may_use_bpf() {
        return;
    }
    let check = |more: &[&str]| {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .args(["relay", "--check-config", "--socks5", ANY])
            .args(more);
        let output = command.uid(65534).gid(65534).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(check(&[]).0, Some(0));
    let (code, stderr) = check(&WINDOWS);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(
        stderr.contains("--initial-window-downstream: ") && stderr.contains("CAP_BPF"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let (code, stderr) = check(&["--initial-window-upstream", "1025"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("1..=1024"), "{stderr}");
}

/// Counters in the server's namespace: SYNs that offer ECN (RFC 3168 §6.1.1), and others.
const SYNS: &str = "table inet seen {
    chain in {
        type filter hook input priority filter
        tcp flags & (syn | ack | ecn | cwr) == (syn | ecn | cwr) counter
        tcp flags & (syn | ack | ecn | cwr) == syn counter
    }
}
";

#[test]
fn offers_ecn_if_profile_enables_it() {
    if !may_use_bpf() {
        return;
    }
    let bed = Testbed::new("ecn");
    let [v4, _] = BOTH;
    run_with_input(&bed.server, "nft", &["-f", "-"], SYNS);
    for (profile, offered) in [("", 0), ("[profile.upstream]\necn = true\n", 1)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = "[[listener]]\nkind = 'transparent'\naddress = '127.0.0.1:3129'\nintercept = ['10.77.2.0/24']\n";
        std::fs::write(file.path(), [listener, profile].concat()).unwrap();
        let command = bed.command(&["--config", file.path().to_str().unwrap()]);
        let _relay = Relay::spawn_with_listeners(command, 1);
        let server = bed.listen(v4.server_port(8080));
        let client = bed.connect(v4.server_port(8080)).unwrap();
        transfer_both_ways(&client, &accept(&server), 1);
        let mut list = Command::new("nft");
        list.args(["list", "table", "inet", "seen"]);
        let output = inside(&mut list, &bed.server).output().unwrap();
        let rules = String::from_utf8(output.stdout).unwrap();
        let counts: Vec<_> = rules
            .lines()
            .filter_map(|line| line.split("packets ").nth(1))
            .collect();
        let counted = |n: usize| counts[n].split(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!((counted(0), counted(1)), (offered, 1), "{profile}");
    }
}
