// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay under a service manager: its notifications, and the sockets passed to it. The tests
//! act as the manager; `systemd-socket-activate` does so too if it is installed.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, transfer_both_ways,
};
use rustix::process::Signal;
use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Service manager that receives the relay's notifications.
struct Manager {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self { socket, directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("relay.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    fn start(&self, text: &str, environment: &[(&str, &str)]) -> Relay {
        self.write(text);
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .args(["relay", "--config"])
            .arg(self.file())
            .env("NOTIFY_SOCKET", self.directory.path().join("notify"))
            .envs(environment.iter().copied());
        Relay::spawn_with_listeners(command, 1)
    }

    /// Receives the next message and returns its lines.
    fn receive(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let len = self.socket.recv(&mut bytes).expect("a message");
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn forward(from: SocketAddr, to: SocketAddr, more: &str) -> String {
    format!("[[listener]]\nkind = 'forward'\naddress = '{from}'\ndestination = '{to}'\n{more}\n")
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn has(message: &[String], line: &str) -> bool {
    message.iter().any(|l| l.starts_with(line))
}

#[test]
fn notifies_of_start_reload_and_stop() {
    let manager = Manager::new();
    let (listener, to) = listen_as_origin();
    let good = forward(local(0), to, "name = 'a'");
    let relay = manager.start(&good, &[]);
    let ready = manager.receive();
    assert!(has(&ready, "READY=1"), "{ready:?}");
    assert!(
        has(&ready, "STATUS=1 listeners, 0 connections"),
        "{ready:?}"
    );
    let client = connect(relay.address("forward"));
    transfer_both_ways(&client, &accept(&listener), 1);

    for (text, outcome) in [
        (&*good, "STATUS=1 listeners"),
        ("[limit]\n", "STATUS=not reloaded: "),
    ] {
        manager.write(text);
        relay.signal(Signal::HUP);
        let reloading = manager.receive();
        assert!(has(&reloading, "RELOADING=1"), "{reloading:?}");
        assert!(has(&reloading, "MONOTONIC_USEC="), "{reloading:?}");
        let ready = manager.receive();
        assert!(has(&ready, "READY=1") && has(&ready, outcome), "{ready:?}");
    }
    relay.signal(Signal::TERM);
    assert!(has(&manager.receive(), "STOPPING=1"));
    assert!(relay.wait().0.success());
}

#[test]
fn sends_watchdog_messages_until_exit() {
    let manager = Manager::new();
    let (listener, to) = listen_as_origin();
    let relay = manager.start(&forward(local(0), to, ""), &[("WATCHDOG_USEC", "200000")]);
    assert!(has(&manager.receive(), "READY=1"));
    let client = connect(relay.address("forward"));
    let server = accept(&listener);
    for _ in 0..5 {
        assert_eq!(manager.receive(), ["WATCHDOG=1"]);
    }
    // An open connection delays the exit; the relay is alive meanwhile.
    relay.signal(Signal::TERM);
    while !has(&manager.receive(), "STOPPING=1") {}
    for _ in 0..5 {
        assert_eq!(manager.receive(), ["WATCHDOG=1"]);
    }
    transfer_both_ways(&client, &server, 1);
    assert!(relay.wait().0.success());
}

#[test]
fn ignores_watchdog_of_other_process() {
    let manager = Manager::new();
    let (_listener, to) = listen_as_origin();
    let environment = [("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1")];
    let relay = manager.start(&forward(local(0), to, ""), &environment);
    assert!(has(&manager.receive(), "READY=1"));
    relay.signal(Signal::TERM);
    assert!(has(&manager.receive(), "STOPPING=1"));
}

/// Returns a command that becomes a relay with `sockets` (two at most) passed under `names`.
fn activated(sockets: &[&TcpListener], names: Option<&str>, config: &Path) -> Command {
    let names = names.map_or(String::new(), |names| format!("LISTEN_FDNAMES={names}"));
    let (count, binary) = (sockets.len(), longhaul_testprograms::longhaul());
    // The process id is known only to the process itself.
    let line = format!(
        "exec 3<&0 4<&1 </dev/null >/dev/null; [ {count} = 2 ] || exec 4<&-; \
         exec env LISTEN_PID=$$ LISTEN_FDS={count} {names} \
         '{binary}' relay --workers 2 --config '{}'",
        config.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let handle = |socket: &TcpListener| Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
    command.stdin(handle(sockets[0]));
    command.stdout(
        sockets
            .get(1)
            .map_or_else(Stdio::null, |socket| handle(socket)),
    );
    command
}

fn socket() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns a configuration file and its directory.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("relay.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn refused(sockets: &[&TcpListener], names: Option<&str>, text: &str) -> String {
    let (_directory, path) = file(text);
    let Output { status, stderr, .. } = activated(sockets, names, &path).output().unwrap();
    let log = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    log
}

#[test]
fn matches_passed_sockets_by_address_or_name() {
    let (origin, to) = listen_as_origin();
    let (by_address, at) = socket();
    let (by_name, named_at) = socket();
    let text = forward(at, to, "") + &forward(local(9), to, "name = 'web'");
    let (_directory, path) = file(&text);
    let command = activated(&[&by_address, &by_name], Some("any:web"), &path);
    let relay = Relay::spawn_with_listeners(command, 2);
    // More clients than workers: both workers accept on the one socket.
    for address in [at, named_at, at, named_at, at] {
        let client = connect(address);
        transfer_both_ways(&client, &accept(&origin), 1);
    }
    assert!(relay.stop().0.success());
}

#[test]
fn serves_clients_that_connected_during_restart() {
    let (origin, to) = listen_as_origin();
    let (listener, at) = socket();
    let (_directory, path) = file(&forward(at, to, ""));
    let first = Relay::spawn_with_listeners(activated(&[&listener], None, &path), 1);
    transfer_both_ways(&connect(at), &accept(&origin), 1);
    assert!(first.stop().0.success());
    let waiting = connect(at);
    let _second = Relay::spawn_with_listeners(activated(&[&listener], None, &path), 1);
    transfer_both_ways(&waiting, &accept(&origin), 1);
}

#[test]
fn reload_keeps_passed_sockets() {
    let (origin, to) = listen_as_origin();
    let (listener, at) = socket();
    let good = forward(at, to, "name = 'web'");
    let (_directory, path) = file(&good);
    let relay = Relay::spawn_with_listeners(activated(&[&listener], None, &path), 1);
    let reload = |text: &str, word: &str| {
        fs::write(&path, text).unwrap();
        relay.signal(Signal::HUP);
        relay.wait_for_stderr(word)
    };
    let slow = good.clone() + "profile = 'slow'\n[profile.slow]\nmss = 1000\n";
    for (bad, word) in [
        (slow, "other socket options"),
        (forward(local(0), to, ""), "its removal"),
    ] {
        let log = reload(&bad, "not reloaded");
        assert!(log.contains("listener web") && log.contains(word), "{log}");
        transfer_both_ways(&connect(at), &accept(&origin), 1);
    }
    let more = good.clone() + "rate = '10gbit'\n" + &forward(local(0), to, "");
    reload(&more, "configuration reloaded");
    transfer_both_ways(&connect(at), &accept(&origin), 1);
}

#[test]
fn refuses_unused_passed_socket() {
    let (_origin, to) = listen_as_origin();
    let (listener, at) = socket();
    let log = refused(&[&listener], Some("web"), &forward(local(0), to, ""));
    assert!(
        log.contains("socket web") && log.contains(&at.to_string()),
        "{log}"
    );

    let client = TcpStream::connect(at).unwrap();
    let connection = TcpListener::from(OwnedFd::from(client));
    let text = forward(local(0), to, "name = 'web'");
    let log = refused(&[&connection], Some("web"), &text);
    assert!(
        log.contains("web, which is not a TCP socket that listens"),
        "{log}"
    );
    // One socket, two names.
    let log = refused(&[&listener], Some("a:b"), &text);
    assert!(log.contains("LISTEN_FDNAMES"), "{log}");
}

/// Also on a passed socket, no relay listens off loopback for every client.
#[test]
fn passed_socket_off_loopback_needs_allow_from() {
    let (_origin, to) = listen_as_origin();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let text = forward(local(1), to, "name = 'web'");
    let log = refused(&[&everywhere], Some("web"), &text);
    assert!(log.contains("allow_from"), "{log}");
}

#[test]
fn works_with_systemd_socket_activate() {
    let launcher = "systemd-socket-activate";
    // An additional check; systemd need not be installed for it.
    if Command::new(launcher).arg("--version").output().is_err() {
        longhaul_testprograms::skip::record(format!("{launcher} is not installed"));
        return;
    }
    let (origin, to) = listen_as_origin();
    let (free, at) = socket();
    drop(free);
    let (_directory, path) = file(&forward(at, to, ""));
    let mut command = Command::new(launcher);
    command.args([
        "--listen",
        &at.to_string(),
        longhaul_testprograms::longhaul(),
    ]);
    command.args(["relay", "--config"]).arg(&path);
    // The launcher becomes the relay when the first client connects.
    let first = std::thread::spawn(move || {
        loop {
            match TcpStream::connect(at) {
                Ok(client) => return client,
                Err(_) => std::thread::yield_now(),
            }
        }
    });
    let relay = Relay::spawn_with_listeners(command, 1);
    let client = first.join().unwrap();
    longhaul_testnet::relay_process::set_timeouts(&client);
    transfer_both_ways(&client, &accept(&origin), 1);
    assert!(relay.stop().0.success());
}
