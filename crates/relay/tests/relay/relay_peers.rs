// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections between relays: pooled connections, and peers that fail and recover.

use longhaul_linux::socket::reset_on_close;
use longhaul_protocol::{
    convert::{Answer, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, dial, listen_as_origin, parse_http_status, read_array,
    read_convert_answer, read_http_head, refusing_address, transfer_both_ways,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

/// A relay with one worker and a pool of connections to a peer, and its counters.
struct Near {
    relay: Relay,
    directory: tempfile::TempDir,
}

impl Near {
    fn new(peer: SocketAddr, pool: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let counters = directory.path().join("counters");
        let (peer, pool) = (peer.to_string(), pool.to_string());
        let forward = format!("{ANY}=192.0.2.7:7");
        let listeners = ["--forward", &forward, "--http", ANY, "--peer", &peer];
        let peer_args = ["--peer-pool", &pool, "--workers", "1"];
        let counters = [
            "--counters",
            counters.to_str().unwrap(),
            "--interval",
            "5ms",
        ];
        let relay = Relay::start(&[&listeners[..], &peer_args, &counters].concat());
        Self { relay, directory }
    }

    fn connect(&self) -> TcpStream {
        connect(self.relay.address("forward"))
    }

    fn records(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.directory.path().join("counters")).unwrap();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let record = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let records = whole.map(record);
        records.filter(|r| r["record"] == "relay").collect()
    }

    /// Waits until a new counters record reports this number of pooled connections.
    fn has_ready(&self, want: u64) {
        let (start, before) = (Instant::now(), self.records().len());
        loop {
            let records = self.records();
            // The first new record may have been made before the call.
            let new = records.get(before + 1..).and_then(<[_]>::last);
            if new.is_some_and(|record| record["peers"][0]["pool_idle"] == want) {
                return;
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "never {want} ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the first of `streams` with received bytes. The timeout only ends a failing test.
fn first_readable(streams: &mut Vec<TcpStream>) -> TcpStream {
    let start = Instant::now();
    loop {
        let is_readable = |stream: &TcpStream| !is_silent(stream);
        if let Some(index) = streams.iter().position(is_readable) {
            return streams.remove(index);
        }
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "no stream received anything"
        );
        std::thread::yield_now();
    }
}

fn is_silent(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn read_request(stream: &mut TcpStream) -> Request {
    let mut bytes = Vec::new();
    loop {
        bytes.extend(read_array::<1>(stream));
        if let Some((request, _)) = Request::parse(&bytes).unwrap() {
            return request;
        }
    }
}

fn assert_relays(client: &mut TcpStream, peer: &mut TcpStream) {
    peer.write_all(&Answer::Accepted.encode()).unwrap();
    peer.write_all(b"down").unwrap();
    assert_eq!(read_array(client), *b"down");
    client.write_all(b"up").unwrap();
    assert_eq!(read_array(peer), *b"up");
}

#[test]
fn sends_request_over_pooled_connection() {
    let (listener, address) = listen_as_origin();
    let near = Near::new(address, 2);
    let mut ready = vec![accept(&listener), accept(&listener)];
    near.has_ready(2);
    let mut client = near.connect();
    let mut peer = first_readable(&mut ready);
    let destination = "192.0.2.7:7".parse::<Destination>().unwrap();
    assert_eq!(read_request(&mut peer).destination, destination);
    assert_relays(&mut client, &mut peer);
    // The pool is filled again, and the other connection is not used.
    assert!(is_silent(&accept(&listener)));
    assert!(is_silent(&ready[0]));
}

#[test]
fn replaces_closed_pooled_connection() {
    let (listener, address) = listen_as_origin();
    let near = Near::new(address, 1);
    drop(accept(&listener));
    let mut ready = vec![accept(&listener)];
    near.has_ready(1);
    let mut client = near.connect();
    let mut peer = first_readable(&mut ready);
    read_request(&mut peer);
    assert_relays(&mut client, &mut peer);
}

#[test]
fn retries_request_once_after_pooled_connection_is_reset() {
    let (listener, address) = listen_as_origin();
    let near = Near::new(address, 1);
    let mut stale = accept(&listener);
    near.has_ready(1);
    let mut client = near.connect();
    let first = read_request(&mut stale);
    reset_on_close(&stale).unwrap();
    drop(stale);
    // One connection fills the pool, the other carries the request.
    let mut streams = vec![accept(&listener), accept(&listener)];
    let mut peer = first_readable(&mut streams);
    let again = read_request(&mut peer);
    assert_ne!(again.stripes, first.stripes, "a group of its own");
    let stripes = first.stripes;
    assert_eq!(Request { stripes, ..again }, first);
    assert_relays(&mut client, &mut peer);
}

#[test]
fn never_repeats_client_bytes() {
    let (listener, address) = listen_as_origin();
    let near = Near::new(address, 1);
    let mut stale = accept(&listener);
    near.has_ready(1);
    let mut client = near.connect();
    client.write_all(b"pay").unwrap();
    read_request(&mut stale);
    assert_eq!(read_array(&mut stale), *b"pay");
    reset_on_close(&stale).unwrap();
    drop(stale);
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(is_silent(&accept(&listener)));
}

/// An idempotent request without a body is repeated (RFC 9110 §9.2.2).
/// Reads a request, without its group of legs, which is another one each time.
fn read_ungrouped(stream: &mut TcpStream) -> Request {
    Request {
        stripes: None,
        ..read_request(stream)
    }
}

#[test]
fn retries_idempotent_http_request_after_reset() {
    for (method, again) in [("GET", true), ("DELETE", true), ("POST", false)] {
        let (listener, address) = listen_as_origin();
        let near = Near::new(address, 1);
        let mut stale = accept(&listener);
        near.has_ready(1);
        let mut client = connect(near.relay.address("http"));
        let head = format!("{method} http://192.0.2.7:7/ HTTP/1.1\r\nHost: x\r\n");
        write!(client, "{head}Content-Length: 0\r\n\r\n").unwrap();
        let first = (read_ungrouped(&mut stale), read_http_head(&mut stale));
        reset_on_close(&stale).unwrap();
        drop(stale);
        if !again {
            assert_eq!(parse_http_status(&read_http_head(&mut client)), 502);
            continue;
        }
        let mut streams = vec![accept(&listener), accept(&listener)];
        let mut peer = first_readable(&mut streams);
        assert_eq!(
            (read_ungrouped(&mut peer), read_http_head(&mut peer)),
            first
        );
        peer.write_all(&Answer::Accepted.encode()).unwrap();
        write!(peer, "HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        assert_eq!(parse_http_status(&read_http_head(&mut client)), 204);
    }
}

#[test]
fn pooled_connection_outlives_handshake_timeout() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY, "--handshake-timeout", "20ms"]);
    let mut early = connect(far.address("convert"));
    std::thread::sleep(Duration::from_millis(200));
    let request = Request::new(Destination::Address(address), vec![]);
    early.write_all(&request.encode()).unwrap();
    assert_eq!(read_convert_answer(&mut early), Answer::Accepted);
    transfer_both_ways(&early, &accept(&listener), 1);
}

#[test]
fn idle_timeout_closes_silent_connection() {
    let listener = "[[listener]]\nkind = 'convert'\naddress = '127.0.0.1:0'\nidle_timeout = '50ms'";
    let far = Relay::start_with_config(listener, 1);
    let mut silent = connect(far.address("convert"));
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
}

#[test]
fn pooled_connections_do_not_delay_exit() {
    let far = Relay::start(&["--convert", ANY, "--workers", "1"]);
    let mut ready = connect(far.address("convert"));
    // A later connection has been served, so this one has been accepted.
    let (_socket, closed) = refusing_address();
    assert!(
        dial(
            "convert",
            far.address("convert"),
            &Destination::Address(closed)
        )
        .is_err()
    );
    let (status, log) = far.stop();
    assert!(status.success());
    assert!(log.contains("no connection reset"), "{log}");
    assert_eq!(ready.read(&mut [0]).unwrap(), 0);
}

#[test]
fn relays_all_protocols_over_pool() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let forward = format!("{ANY}={address}");
    let listeners = ["--forward", &forward, "--socks5", ANY, "--http", ANY];
    let near = Relay::start(&[&listeners[..], &["--peer", &peer, "--peer-pool", "2"]].concat());
    let to = Destination::Address(address);
    for kind in ["forward", "socks5", "http"] {
        for _ in 0..8 {
            let client = dial(kind, near.address(kind), &to).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        }
    }
}

/// Starts a relay whose route has a first peer and a fallback.
fn with_fallback(first: SocketAddr, second: SocketAddr) -> Relay {
    let text = format!(
        "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '192.0.2.7:7'\n\
         [peer.first]\naddress = '{first}'\n[peer.second]\naddress = '{second}'\n\
         [[route]]\nvia = ['first']\nfallback = [['second']]\n"
    );
    Relay::start_with_config(&text, 1)
}

#[test]
fn uses_fallback_while_peer_is_down() {
    let (socket, first) = refusing_address();
    let (second, address) = listen_as_origin();
    let near = with_fallback(first, address);
    for _ in 0..3 {
        let mut client = connect(near.address("forward"));
        let mut peer = accept(&second);
        read_request(&mut peer);
        assert_relays(&mut client, &mut peer);
    }
    // The peer starts, a check finds it, and it is used again.
    rustix::net::listen(&socket, 16).unwrap();
    let first = TcpListener::from(OwnedFd::from(socket));
    first.set_nonblocking(false).unwrap();
    let mut check = accept(&first);
    assert!(read_request(&mut check).is_health_check());
    check.write_all(&Answer::Accepted.encode()).unwrap();
    assert_eq!(check.read(&mut [0]).unwrap(), 0);
    let mut client = connect(near.address("forward"));
    let mut peer = accept(&first);
    read_request(&mut peer);
    assert_relays(&mut client, &mut peer);
}

/// A client of a convert listener may name any hops. Their failures are not logged.
#[test]
fn does_not_log_failures_of_hops_named_by_clients() {
    let relay = Relay::start(&["--convert", ANY]);
    for _ in 0..50 {
        let (_socket, nobody) = refusing_address();
        let request = Request::new("192.0.2.7:7".parse().unwrap(), vec![nobody]);
        let mut client = connect(relay.address("convert"));
        client.write_all(&request.encode()).unwrap();
        assert!(matches!(
            read_convert_answer(&mut client),
            Answer::Refused { .. }
        ));
    }
    let (_, log) = relay.stop();
    let lines = log.lines().filter(|line| line.contains("peer"));
    assert_eq!(lines.count(), 0, "{log}");
}

/// Starts a relay whose clients go through the peers `a` and `b`, or directly.
fn with_chain(a: SocketAddr, b: SocketAddr, more: &str) -> Relay {
    let listeners = ["http", "socks5"].map(|kind| listener(kind, "")).concat();
    let peers = format!("[peer.a]\naddress = '{a}'\n[peer.b]\naddress = '{b}'\n");
    let route = "[[route]]\nvia = ['a', 'b']\nfallback = [[]]\n";
    let text = format!("{more}{listeners}{peers}{route}");
    Relay::start_with_config(&text, text.matches("[[listener]]").count())
}

fn listener(kind: &str, more: &str) -> String {
    format!("[[listener]]\nkind = '{kind}'\naddress = '{ANY}'\n{more}")
}

/// A failure of a later peer, reported by the relay before it, counts like a failed connection of
/// this relay.
#[test]
fn falls_back_if_second_peer_of_chain_is_down() {
    let (origin, address) = listen_as_origin();
    let a = Relay::start(&["--convert", ANY]);
    let (socket, away) = refusing_address();
    let forward = listener("forward", &format!("destination = '{address}'\n"));
    let near = with_chain(a.address("convert"), away, &forward);
    let to = Destination::Address(address);
    let dialled = |kind| {
        let client = dial(kind, near.address(kind), &to).unwrap();
        transfer_both_ways(&client, &accept(&origin), 1);
    };
    // The first client is served, too.
    dialled("socks5");
    dialled("http");
    // This client's bytes are sent with its request, which can't be repeated.
    transfer_both_ways(&connect(near.address("forward")), &accept(&origin), 1);
    let log = near.wait_for_stderr("peer b is down");
    let why = format!("connection refused at relay {away}, says relay a");
    assert!(log.contains(&why), "{log}");
    near.wait_for_stderr("clients connect directly to their destinations while peer b is down");
    drop(socket);
    let b = Relay::start(&["--convert", &away.to_string()]);
    near.wait_for_stderr("peer b is back");
    dialled("socks5");
    let (_, log) = b.stop();
    assert!(!log.contains("client refused"), "{log}");
}

/// This relay may not be allowed there, and only the path through the first peer matters.
#[test]
fn checks_second_peer_through_first() {
    let (a, at_a) = listen_as_origin();
    let (b, at_b) = listen_as_origin();
    let admin = format!("[admin]\naddress = '{ANY}'\n");
    let _near = with_chain(at_a, at_b, &admin);
    let checked = [(); 2].map(|()| {
        let mut stream = accept(&a);
        let request = read_request(&mut stream);
        stream.write_all(&Answer::Accepted.encode()).unwrap();
        request.hops[0]
    });
    assert!(checked.contains(&at_b), "{checked:?}");
    b.set_nonblocking(true).unwrap();
    assert_eq!(b.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
