// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptor exhaustion while the relay serves, as when other processes use up the system's: the
//! relay logs it once, waits without spinning, loses no client, and continues.

use crate::relay_conformance::chain::{Chain, DestinationKind, LISTENERS, LegMode, accept};
use longhaul_testnet::{
    relay_process::{
        Relay, connect, listen_as_origin, may_use_namespaces, read_array, read_http_head,
        transfer_both_ways,
    },
    relay_testbed::{Addresses, BOTH},
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::{scope, sleep, spawn},
    time::Duration,
};

const CLIENTS: u8 = 50;

#[test]
fn waits_and_logs_without_descriptors() {
    check_waiting_with_spare(0);
}

/// The health says that descriptors are short, on a connection that was open before.
#[test]
fn health_shows_lack_of_descriptors() {
    let (listener, address) = listen_as_origin();
    let forward = format!("127.0.0.1:0={address}");
    let any = "127.0.0.1:0";
    let relay = Relay::start(&["--forward", &forward, "--admin", any, "--workers", "1"]);
    transfer_both_ways(&connect(relay.address("forward")), &accept(&listener), 1);
    let mut admin = connect(relay.address("admin"));
    wait_for_health(&mut admin, "\"descriptors_exhausted\":false");
    with_exhausted_descriptors(relay.pid(), 0, |restore| {
        let mut client = connect(relay.address("forward"));
        client.write_all(b"x").unwrap();
        wait_for_health(&mut admin, "\"descriptors_exhausted\":true");
        restore();
        assert_eq!(read_array(&mut accept(&listener)), *b"x");
        wait_for_health(&mut admin, "\"descriptors_exhausted\":false");
    });
}

/// Asks for the health on one connection until it contains `wanted`.
fn wait_for_health(admin: &mut TcpStream, wanted: &str) {
    loop {
        admin
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let head = read_http_head(admin);
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        admin.read_exact(&mut body).unwrap();
        if String::from_utf8(body).unwrap().contains(wanted) {
            return;
        }
        sleep(Duration::from_millis(50));
    }
}

/// One descriptor is enough for a client's leg, but not for the other.
#[test]
fn waits_with_one_descriptor() {
    check_waiting_with_spare(1);
}

fn check_waiting_with_spare(spare: u64) {
    let (listener, address) = listen_as_origin();
    let forward = format!("127.0.0.1:0={address}");
    let relay = Relay::start(&["--forward", &forward, "--workers", "1"]);
    let pid = relay.pid();
    // The relay now has all descriptors that it needs without clients, and pipes besides.
    transfer_both_ways(&connect(relay.address("forward")), &accept(&listener), 1);
    let hard = hard_limit(pid);
    limit_descriptors(pid, lowest_free_descriptor(pid) + spare, hard);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| connect(relay.address("forward")))
        .collect();
    for (client, number) in clients.iter_mut().zip(0..) {
        client.write_all(&[number]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    let spent = ticks_in_a_second(pid);
    assert!(
        spent < 30,
        "{spent} ticks of CPU in one second without descriptors"
    );
    limit_descriptors(pid, hard, hard);
    let mut seen: Vec<u8> = (0..CLIENTS)
        .map(|_| read_array::<1>(&mut accept(&listener))[0])
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..CLIENTS));
    drop(clients);
    let (_, log) = relay.stop();
    assert!(log.contains("no connection reset"), "{log}");
    let times = |words| log.matches(words).count();
    assert!((1..5).contains(&times("new connections wait")), "{log}");
    assert_eq!(
        times("accepting again"),
        times("new connections wait"),
        "{log}"
    );
}

/// Each listener of both families, and each kind of leg to and from peers: whichever relay of the
/// chain lacks descriptors, its clients wait and are served once it has descriptors again.
#[test]
fn all_listeners_and_legs_wait_without_descriptors() {
    if !may_use_namespaces() {
        return;
    }
    for (peers, mode, hop) in [
        (0, LegMode::Splice, 0),
        (1, LegMode::Copy, 0),
        (1, LegMode::Copy, 1),
        (1, LegMode::Tls, 0),
        (1, LegMode::Tls, 1),
    ] {
        for spare in [0, 1] {
            eprintln!("{peers} peers, {mode:?}, hop {hop} has {spare} left");
            let mut chain = Chain::with_timeout(peers, mode, "20s");
            for family in &BOTH {
                let origin = chain.origin(family).try_clone().unwrap();
                spawn(move || echo(&origin));
            }
            // The first connections allocate pipes and buffers.
            for_all_listeners(|kind, family| request(&chain, kind, family));
            let pid = chain.relays[hop].pid();
            let completed = AtomicU64::new(0);
            with_exhausted_descriptors(pid, spare, |restore| {
                scope(|scope| {
                    scope.spawn(|| {
                        for_all_listeners(|kind, family| {
                            request(&chain, kind, family);
                            completed.fetch_add(1, Relaxed);
                        });
                    });
                    sleep(Duration::from_millis(500));
                    restore();
                });
            });
            assert_eq!(completed.into_inner(), 2 * 4 * LISTENERS.len() as u64);
            let (_, log) = chain.relays.remove(hop).stop();
            assert_few_log_lines(&log, 2 * LISTENERS.len());
        }
    }
}

/// Makes four requests at once through each listener of each family.
fn for_all_listeners(run: impl Fn(&str, &Addresses) + Sync) {
    let run = &run;
    scope(|scope| {
        for (family, kind) in BOTH.iter().flat_map(|f| LISTENERS.map(|k| (f, k))) {
            for _ in 0..4 {
                scope.spawn(move || run(kind, family));
            }
        }
    });
}

fn request(chain: &Chain, kind: &str, family: &Addresses) {
    let client = chain.dial(kind, family, DestinationKind::Origin);
    let mut client = client.unwrap_or_else(|code| panic!("{kind}, {}: {code}", family.client));
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "hello", "{kind} from {}", family.client);
}

/// Echo server, for as long as the test runs.
fn echo(origin: &TcpListener) {
    origin.set_nonblocking(false).unwrap();
    while let Ok((mut client, _)) = origin.accept() {
        spawn(move || {
            let mut received = Vec::new();
            if client.read_to_end(&mut received).is_ok() {
                let _ = client.write_all(&received);
            }
        });
    }
}

/// Requests that need more descriptors than a leg wait for all of them: BIND, UDP ASSOCIATE, names,
/// and requests over HTTP.
#[test]
fn requests_with_many_descriptors_wait() {
    type RequestFn = fn(&Relay, SocketAddr) -> String;
    let kinds: [(&str, RequestFn); 4] = [
        ("BIND", bind),
        ("UDP ASSOCIATE", associate),
        ("a name", by_name),
        ("GET", get),
    ];
    let (listener, at) = listen_as_origin();
    spawn(move || echo(&listener));
    for (what, request) in kinds {
        for spare in 0..4 {
            eprintln!("{what} with {spare} left");
            let any = "127.0.0.1:0";
            let args = ["--socks5", any, "--http", any, "--workers", "1"];
            let relay = Relay::start(&[&args[..], &["--connect-timeout", "20s"]].concat());
            let before = request(&relay, at);
            with_exhausted_descriptors(relay.pid(), spare, |restore| {
                scope(|scope| {
                    let requests: Vec<_> = (0..4)
                        .map(|_| scope.spawn(|| request(&relay, at)))
                        .collect();
                    sleep(Duration::from_millis(500));
                    restore();
                    for answer in requests {
                        assert_eq!(answer.join().unwrap(), before);
                    }
                });
            });
            let (_, log) = relay.stop();
            assert_few_log_lines(&log, 2);
        }
    }
}

fn socks5(relay: &Relay, command: u8, to: &[u8]) -> TcpStream {
    let mut client = connect(relay.address("socks5"));
    client.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0]);
    client.write_all(&[&[5, command, 0], to].concat()).unwrap();
    client
}

/// Address in a SOCKS5 reply of success.
fn reply_address(client: &mut TcpStream) -> SocketAddr {
    let [5, code, 0, 1] = read_array(client) else {
        panic!("no SOCKS5 reply with an IPv4 address");
    };
    let (ip, port) = (read_array::<4>(client), read_array(client));
    assert_eq!(code, 0, "refused");
    (ip, u16::from_be_bytes(port)).into()
}

const UNSPECIFIED: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

fn bind(relay: &Relay, _: SocketAddr) -> String {
    let mut client = socks5(relay, 2, &UNSPECIFIED);
    let peer = connect(reply_address(&mut client));
    reply_address(&mut client);
    transfer_both_ways(&client, &peer, 1);
    "connected".to_owned()
}

/// Sends datagrams of both families.
fn associate(relay: &Relay, _: SocketAddr) -> String {
    let mut control = socks5(relay, 3, &UNSPECIFIED);
    let bound = reply_address(&mut control);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let server = UdpSocket::bind(host).unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let to = longhaul_protocol::socks5::datagram_header(server.local_addr().unwrap());
        client
            .send_to(&[&to[..], b"hello"].concat(), bound)
            .unwrap();
        let mut received = [0; 5];
        server.recv(&mut received).expect(host);
        assert_eq!(received, *b"hello");
    }
    "received".to_owned()
}

fn by_name(relay: &Relay, at: SocketAddr) -> String {
    let name = [&[3, 9], &b"localhost"[..], &at.port().to_be_bytes()].concat();
    let mut client = socks5(relay, 1, &name);
    reply_address(&mut client);
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    received
}

/// Requests a page from its own origin.
fn get(relay: &Relay, _: SocketAddr) -> String {
    let (listener, at) = listen_as_origin();
    let serving = spawn(move || {
        let mut server = accept(&listener);
        read_http_head(&mut server);
        server
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
    });
    let mut client = connect(relay.address("http"));
    write!(client, "GET http://{at}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let head = read_http_head(&mut client);
    serving.join().unwrap();
    head.lines().next().unwrap().to_owned()
}

/// Leaves the process `spare` descriptors during `run`. When `run` calls its argument, checks that
/// the process uses no CPU, and restores the limit.
fn with_exhausted_descriptors(pid: Pid, spare: u64, requests: impl FnOnce(&dyn Fn())) {
    let hard = hard_limit(pid);
    limit_descriptors(pid, lowest_free_descriptor(pid) + spare, hard);
    requests(&|| {
        let spent = ticks_in_a_second(pid);
        limit_descriptors(pid, hard, hard);
        assert!(spent < 10, "{spent} ticks of CPU in a second of waiting");
    });
}

/// Checks the log: one line when waiting begins and one when it ends, for each socket that waited.
fn assert_few_log_lines(log: &str, listeners: usize) {
    let times = |words| log.matches(words).count();
    let waits = times("new connections wait");
    assert!(waits <= 4 * listeners, "{log}");
    // Another socket may have served the last client of a socket.
    assert!(times("accepting again") <= waits, "{log}");
}

fn limit_descriptors(pid: Pid, current: u64, maximum: u64) {
    let limit = Rlimit {
        current: Some(current),
        maximum: Some(maximum),
    };
    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
}

/// Hard limit on descriptors; the relay has raised its soft limit to it.
fn hard_limit(pid: Pid) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    line.unwrap()
        .split_whitespace()
        .nth(4)
        .unwrap()
        .parse()
        .unwrap()
}

/// Lowest free descriptor: with this limit, the process has none left.
fn lowest_free_descriptor(pid: Pid) -> u64 {
    let taken = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let free = (0..).find(|number| fs::symlink_metadata(format!("{taken}/{number}")).is_err());
    free.unwrap()
}

/// User and system time of the process (proc_pid_stat(5), fields 14 and 15), in ticks of 10 ms.
fn ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    let fields = behind_name.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

fn ticks_in_a_second(pid: Pid) -> u64 {
    let before = ticks(pid);
    sleep(Duration::from_secs(1));
    ticks(pid) - before
}

#[test]
fn respects_initial_limit_silently() {
    let (listener, address) = listen_as_origin();
    let mut command = Command::new("prlimit");
    command.args([
        "--nofile=128:128",
        longhaul_testprograms::longhaul(),
        "relay",
    ]);
    let forward = format!("127.0.0.1:0={address}");
    command.args(["--workers", "1", "--forward", &forward]);
    let relay = Relay::spawn(command);
    let waiting = (0..2 * CLIENTS).map(|_| connect(relay.address("forward")));
    // More connections than the limit allows; each that ends lets another in.
    for mut client in waiting.collect::<Vec<_>>() {
        client.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut accept(&listener)), *b"x");
    }
    let (_, log) = relay.stop();
    assert!(log.contains("no connection reset"), "{log}");
    assert!(!log.contains("new connections wait"), "{log}");
}
