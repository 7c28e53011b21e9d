// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reload at SIGHUP: a new configuration without the end of any connection.

use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, read_array, receive, send, transfer_both_ways,
};
use longhaul_testprograms::wait::wait_until;
use rustix::process::Signal;
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

struct Reloadable {
    relay: Relay,
    directory: tempfile::TempDir,
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join("relay.toml")
}

impl Reloadable {
    fn start(text: &str, listeners: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(file_in(directory.path()), text).unwrap();
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["relay", "--workers", &WORKERS.to_string()]);
        // The default needs more descriptors than some machines allow, which would be logged.
        command.args(["--max-connections", "64", "--config"]);
        command.arg(file_in(directory.path()));
        let relay = Relay::spawn_with_listeners(command, listeners);
        Self { relay, directory }
    }

    /// Reloads, and returns the log until `word`.
    fn reload(&self, text: &str, word: &str) -> String {
        std::fs::write(file_in(self.directory.path()), text).unwrap();
        self.relay.signal(Signal::HUP);
        self.relay.wait_for_stderr(word)
    }
}

const DONE: &str = "configuration reloaded";

/// Returns an address that no other test uses: the kernel gives ports of 127.0.0.1 to clients and
/// servers of tests that run at the same time, and these have other addresses.
fn free() -> SocketAddr {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let host = (std::process::id() << 8) + CALLS.fetch_add(1, Ordering::Relaxed);
    let host = Ipv4Addr::from_bits(127 << 24 | 1 << 23 | host & 0x7f_ffff);
    let probe = TcpListener::bind((host, 0)).unwrap();
    probe.local_addr().unwrap()
}

fn forward(from: SocketAddr, to: SocketAddr, more: &str) -> String {
    format!("[[listener]]\nkind = 'forward'\naddress = '{from}'\ndestination = '{to}'\n{more}\n")
}

fn refuses(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn reload_adds_and_removes_listeners() {
    let (listener, to) = listen_as_origin();
    let (gone_listener, gone_to) = listen_as_origin();
    let (stays, goes, comes) = (free(), free(), free());
    let before = forward(stays, to, "") + &forward(goes, gone_to, "");
    let relay = Reloadable::start(&before, 2);
    let over_staying = (connect(stays), accept(&listener));
    let over_going = (connect(goes), accept(&gone_listener));
    std::thread::scope(|scope| {
        scope.spawn(|| send(&over_going.0, 7, 64));
        let half = scope.spawn(|| read_array::<4096>(&mut over_going.1.try_clone().unwrap()));
        half.join().unwrap();
        let log = relay.reload(&(forward(comes, to, "") + &forward(stays, to, "")), DONE);
        assert!(log.contains(&format!("listening forward {comes}")), "{log}");
        assert!(!log.contains(&stays.to_string()), "{log}");
        // Workers close their sockets asynchronously.
        wait_until(|| listening_sockets(goes) == 0);
        assert!(refuses(goes));
        drain(&over_going.1, (64 << 20) - 4096);
    });
    for address in [stays, comes] {
        let client = connect(address);
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    transfer_both_ways(&over_staying.0, &over_staying.1, 1);
    send(&over_going.1, 8, 1);
    receive(&over_going.0, 8, 1);
    let (status, log) = relay.relay.stop();
    assert!(
        status.success() && log.contains("no connection reset"),
        "{log}"
    );
}

fn drain(mut stream: &TcpStream, want: u64) {
    let len = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(len, want);
}

#[test]
fn invalid_file_changes_nothing() {
    let (listener, to) = listen_as_origin();
    let (stays, never) = (free(), free());
    let good = forward(stays, to, "");
    let relay = Reloadable::start(&good, 1);
    let (taken, occupied) = listen_as_origin();
    let refused = "not reloaded";
    for (bad, word) in [
        (
            "[[listener]]\nkind = 'sock5'\n".to_owned(),
            "relay.toml:2:8",
        ),
        (forward(never, to, "") + "[limit]\n", "limit"),
        (String::new(), "no listener"),
        (
            forward(never, to, "") + &forward(occupied, to, ""),
            "in use",
        ),
        (
            forward(never, to, "profile = 'x'"),
            "no profile is called x",
        ),
    ] {
        let log = relay.reload(&bad, refused);
        assert!(log.contains(word) && log.lines().count() == 1, "{log}");
        assert!(refuses(never));
        let client = connect(stays);
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    drop(taken);
    relay.reload(&good, DONE);
}

#[test]
fn new_settings_apply_to_later_connections() {
    let (old, old_to) = listen_as_origin();
    let (new, new_to) = listen_as_origin();
    let at = free();
    let relay = Reloadable::start(&forward(at, old_to, ""), 1);
    let first = (connect(at), accept(&old));
    relay.reload(&forward(at, new_to, ""), DONE);
    let second = (connect(at), accept(&new));
    transfer_both_ways(&first.0, &first.1, 1);
    transfer_both_ways(&second.0, &second.1, 1);
    // A different profile needs new sockets.
    for profile in ["tight", "downstream", "tight"] {
        let named = format!("profile = '{profile}'");
        let tight = "[profile.tight]\nnotsent_lowat = '16KiB'\n";
        let held = (connect(at), accept(&new));
        relay.reload(&(forward(at, new_to, &named) + tight), DONE);
        wait_until(|| listening_sockets(at) <= WORKERS);
        let client = connect(at);
        transfer_both_ways(&client, &accept(&new), 1);
        transfer_both_ways(&held.0, &held.1, 1);
    }
}

const WORKERS: usize = 2;

/// Returns the number of sockets that listen on an IPv4 address (proc(5), /proc/net/tcp; state 0A
/// is TCP_LISTEN).
fn listening_sockets(address: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let IpAddr::V4(host) = address.ip() else {
        panic!("{address} is no IPv4 address");
    };
    // Sockets of other tests may have the same port at other addresses.
    let host = u32::from_ne_bytes(host.octets());
    let local = format!("{host:08X}:{:04X}", address.port());
    let listens = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[1] == local && fields[3] == "0A"
    };
    table.lines().skip(1).filter(listens).count()
}

#[test]
fn names_settings_that_need_restart() {
    let (listener, to) = listen_as_origin();
    let (stays, comes) = (free(), free());
    let relay = Reloadable::start(&forward(stays, to, ""), 1);
    let more = forward(comes, to, "") + "[limits]\npipe_size = '64KiB'\n";
    let log = relay.reload(&(forward(stays, to, "") + &more), DONE);
    assert!(
        log.contains("a change of limits.pipe_size needs a restart"),
        "{log}"
    );
    let client = connect(comes);
    transfer_both_ways(&client, &accept(&listener), 1);
}

#[test]
fn reload_without_file_applies_flags_again() {
    let (listener, to) = listen_as_origin();
    let relay = Relay::start(&["--forward", &format!("127.0.0.1:0={to}")]);
    let first = (connect(relay.address("forward")), accept(&listener));
    relay.signal(Signal::HUP);
    let log = relay.wait_for_stderr(DONE);
    assert!(!log.contains("listening"), "{log}");
    transfer_both_ways(&first.0, &first.1, 1);
    let second = connect(relay.address("forward"));
    transfer_both_ways(&second, &accept(&listener), 1);
}

/// 128 descriptors, one worker: pooled connections take permits of client connections, as far as
/// these are free.
#[test]
fn pooled_connections_count_against_descriptor_limit() {
    let (listener, to) = listen_as_origin();
    let (_peer, peer) = listen_as_origin();
    let directory = tempfile::tempdir().unwrap();
    let file = file_in(directory.path());
    let at = free();
    let with_pool = |pool: u16| {
        forward(at, to, "") + &format!("[peer.tokyo]\naddress = '{peer}'\npool = {pool}\n")
    };
    std::fs::write(&file, with_pool(0)).unwrap();
    let line = format!(
        "ulimit -n 128; exec '{}' relay --workers 1 --config '{}'",
        longhaul_testprograms::longhaul(),
        file.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let relay = Relay::spawn_with_listeners(command, 1);
    let reload = |text: &str, word: &str| {
        std::fs::write(&file, text).unwrap();
        relay.signal(Signal::HUP);
        relay.wait_for_stderr(word)
    };
    // 128, less 34 that are always needed and 16 for lookups: 39 for pipes, 19 connections.
    let log = reload(&with_pool(20), DONE);
    assert!(log.contains("room for 9 connections at once now"), "{log}");
    let log = reload(&with_pool(100), "not reloaded");
    assert!(log.contains("100 pooled connections (pool)"), "{log}");
    let log = reload(&with_pool(0), DONE);
    assert!(log.contains("room for 19 connections at once now"), "{log}");
    transfer_both_ways(&connect(at), &accept(&listener), 1);
    let (status, log) = relay.stop();
    assert!(
        status.success() && log.contains("no connection reset"),
        "{log}"
    );
}
