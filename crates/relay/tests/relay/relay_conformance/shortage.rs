// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors run out while the relay serves, as when others use up the system's: it says so once,
//! waits without spinning, loses nobody, and goes on.

use crate::relay_conformance::way::{Carry, Chain, Goal, LISTENERS, accept};
use longhaul_testnet::{
    relay_process::{Relay, connect, exchange, http_head, may_use_namespaces, origin, read_array},
    relay_testbed::{BOTH, Family},
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
fn without_descriptors_it_waits_and_says_so() {
    waits_with_so_many_left(0);
}

/// Enough for a client's leg, but not for the other.
#[test]
fn with_one_descriptor_left_it_refuses_nobody() {
    waits_with_so_many_left(1);
}

fn waits_with_so_many_left(spare: u64) {
    let (listener, address) = origin();
    let forward = format!("127.0.0.1:0={address}");
    let relay = Relay::start(&["--forward", &forward, "--workers", "1"]);
    let pid = relay.pid();
    // Now it has all descriptors that it needs without clients, and pipes besides.
    exchange(&connect(relay.address("forward")), &accept(&listener), 1);
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
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
    let times = |words| said.matches(words).count();
    assert!((1..5).contains(&times("new connections wait")), "{said}");
    assert_eq!(
        times("accepting again"),
        times("new connections wait"),
        "{said}"
    );
}

/// Each listener of both families, and each kind of leg to and from peers: whichever relay of the
/// chain is short, all its clients wait at once, and are served when it has descriptors again.
#[test]
fn every_listener_and_every_leg_waits_without_descriptors() {
    if !may_use_namespaces() {
        return;
    }
    for (peers, carry, hop) in [
        (0, Carry::Splice, 0),
        (1, Carry::Copy, 0),
        (1, Carry::Copy, 1),
        (1, Carry::Tls, 0),
        (1, Carry::Tls, 1),
    ] {
        for spare in [0, 1] {
            eprintln!("{peers} peers, {carry:?}, hop {hop} has {spare} left");
            let mut chain = Chain::patient(peers, carry, "20s");
            for family in &BOTH {
                let origin = chain.origin(family).try_clone().unwrap();
                spawn(move || echo(&origin));
            }
            // Pipes and buffers, and whatever else comes with the first connection.
            all_ways(|kind, family| asks(&chain, kind, family));
            let pid = chain.relays[hop].pid();
            let asked = AtomicU64::new(0);
            starved(pid, spare, |fed| {
                scope(|scope| {
                    scope.spawn(|| {
                        all_ways(|kind, family| {
                            asks(&chain, kind, family);
                            asked.fetch_add(1, Relaxed);
                        });
                    });
                    sleep(Duration::from_millis(500));
                    fed();
                });
            });
            assert_eq!(asked.into_inner(), 2 * 4 * LISTENERS.len() as u64);
            let (_, said) = chain.relays.remove(hop).stop();
            assert_spoke_little(&said, 2 * LISTENERS.len());
        }
    }
}

/// Four at a time of each.
fn all_ways(ask: impl Fn(&str, &Family) + Sync) {
    let ask = &ask;
    scope(|scope| {
        for (family, kind) in BOTH.iter().flat_map(|f| LISTENERS.map(|k| (f, k))) {
            for _ in 0..4 {
                scope.spawn(move || ask(kind, family));
            }
        }
    });
}

fn asks(chain: &Chain, kind: &str, family: &Family) {
    let client = chain.dial(kind, family, Goal::Origin);
    let mut client = client.unwrap_or_else(|code| panic!("{kind}, {}: {code}", family.client));
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello", "{kind} from {}", family.client);
}

/// Answers with what it heard, for as long as the test runs.
fn echo(origin: &TcpListener) {
    origin.set_nonblocking(false).unwrap();
    while let Ok((mut client, _)) = origin.accept() {
        spawn(move || {
            let mut heard = Vec::new();
            if client.read_to_end(&mut heard).is_ok() {
                let _ = client.write_all(&heard);
            }
        });
    }
}

/// What takes more descriptors than a leg waits for all of them: BIND, UDP ASSOCIATE, names, and
/// requests and files over HTTP.
#[test]
fn what_takes_more_than_a_leg_waits_too() {
    type Ask = fn(&Relay, SocketAddr) -> String;
    let asks: [(&str, Ask); 4] = [
        ("BIND", bind),
        ("UDP ASSOCIATE", associate),
        ("a name", by_name),
        ("GET", get),
    ];
    let (listener, at) = origin();
    spawn(move || echo(&listener));
    for (what, ask) in asks {
        for spare in 0..4 {
            eprintln!("{what} with {spare} left");
            let any = "127.0.0.1:0";
            let args = ["--socks5", any, "--http", any, "--workers", "1"];
            let relay = Relay::start(&[&args[..], &["--connect-timeout", "20s"]].concat());
            let before = ask(&relay, at);
            starved(relay.pid(), spare, |fed| {
                scope(|scope| {
                    let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&relay, at))).collect();
                    sleep(Duration::from_millis(500));
                    fed();
                    for answer in asking {
                        assert_eq!(answer.join().unwrap(), before);
                    }
                });
            });
            let (_, said) = relay.stop();
            assert_spoke_little(&said, 2);
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

/// The address in a reply of success.
fn granted(client: &mut TcpStream) -> SocketAddr {
    let [5, code, 0, 1] = read_array(client) else {
        panic!("no SOCKS5 reply with an IPv4 address");
    };
    let (ip, port) = (read_array::<4>(client), read_array(client));
    assert_eq!(code, 0, "refused");
    (ip, u16::from_be_bytes(port)).into()
}

const NOWHERE: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

fn bind(relay: &Relay, _: SocketAddr) -> String {
    let mut client = socks5(relay, 2, &NOWHERE);
    let peer = connect(granted(&mut client));
    granted(&mut client);
    exchange(&client, &peer, 1);
    "met".to_owned()
}

/// Datagrams to both families.
fn associate(relay: &Relay, _: SocketAddr) -> String {
    let mut control = socks5(relay, 3, &NOWHERE);
    let bound = granted(&mut control);
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
        let mut heard = [0; 5];
        server.recv(&mut heard).expect(host);
        assert_eq!(heard, *b"hello");
    }
    "heard".to_owned()
}

fn by_name(relay: &Relay, at: SocketAddr) -> String {
    let name = [&[3, 9], &b"localhost"[..], &at.port().to_be_bytes()].concat();
    let mut client = socks5(relay, 1, &name);
    granted(&mut client);
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    heard
}

/// From an origin of its own.
fn get(relay: &Relay, _: SocketAddr) -> String {
    let (listener, at) = origin();
    let serving = spawn(move || {
        let mut server = accept(&listener);
        http_head(&mut server);
        server
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
    });
    let mut client = connect(relay.address("http"));
    write!(client, "GET http://{at}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let head = http_head(&mut client);
    serving.join().unwrap();
    head.lines().next().unwrap().to_owned()
}

/// Leaves the process `spare` descriptors while `asking` begins, sees that it rests once all have
/// asked, and gives it the others back when `asking` calls its argument.
fn starved(pid: Pid, spare: u64, asking: impl FnOnce(&dyn Fn())) {
    let hard = hard_limit(pid);
    limit_descriptors(pid, lowest_free_descriptor(pid) + spare, hard);
    asking(&|| {
        let spent = ticks_in_a_second(pid);
        limit_descriptors(pid, hard, hard);
        assert!(spent < 10, "{spent} ticks of CPU in a second of waiting");
    });
}

/// A line when the wait begins and one when it is over, for each of the sockets that waited.
fn assert_spoke_little(said: &str, listeners: usize) {
    let times = |words| said.matches(words).count();
    let waits = times("new connections wait");
    assert!(waits <= 4 * listeners, "{said}");
    // The last one of a socket may have been served by another.
    assert!(times("accepting again") <= waits, "{said}");
}

fn limit_descriptors(pid: Pid, current: u64, maximum: u64) {
    let limit = Rlimit {
        current: Some(current),
        maximum: Some(maximum),
    };
    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
}

/// The relay has raised its soft limit to this one.
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

/// With this as its limit, a process has no descriptor left.
fn lowest_free_descriptor(pid: Pid) -> u64 {
    let taken = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let free = (0..).find(|number| fs::symlink_metadata(format!("{taken}/{number}")).is_err());
    free.unwrap()
}

/// User and system time (proc_pid_stat(5), fields 14 and 15), in ticks of 10 ms.
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
fn a_limit_known_from_the_start_is_kept_without_a_word() {
    let (listener, address) = origin();
    let mut command = Command::new("prlimit");
    command.args(["--nofile=128:128", longhaul_testbed::longhaul(), "relay"]);
    let forward = format!("127.0.0.1:0={address}");
    command.args(["--workers", "1", "--forward", &forward]);
    let relay = Relay::spawn(command);
    let waiting = (0..2 * CLIENTS).map(|_| connect(relay.address("forward")));
    // More at once than it has room for; each that goes makes room.
    for mut client in waiting.collect::<Vec<_>>() {
        client.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut accept(&listener)), *b"x");
    }
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
    assert!(!said.contains("new connections wait"), "{said}");
}
