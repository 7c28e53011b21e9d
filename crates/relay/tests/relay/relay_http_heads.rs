// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slow request heads: their memory, and its accounting.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, parse_http_status, read_http_head,
    set_timeouts, transfer_both_ways,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";
/// Flags with which no head times out during a test.
const ARGS: [&str; 6] = [
    "--http",
    ANY,
    "--workers",
    "1",
    "--handshake-timeout",
    "10m",
];
const CLIENTS: u64 = 300;
/// Memory of a connection's state besides the bytes of its head.
const STATE_BYTES: u64 = 10 << 10;

/// First `len` bytes of an endless head.
fn part_of_head(len: usize) -> Vec<u8> {
    let mut head = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n".to_vec();
    while head.len() < len {
        head.extend([b"X-Field: ", &[b'x'; 1000][..], b"\r\n"].concat());
    }
    head.truncate(len);
    head
}

/// Anonymous memory of the process (proc_pid_status(5), RssAnon), once it has not changed for half
/// a second.
fn memory(relay: &Relay) -> u64 {
    let path = format!("/proc/{}/status", relay.pid().as_raw_pid());
    let read = || {
        let status = std::fs::read_to_string(&path).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    };
    let (mut last, mut since) = (read(), Instant::now());
    while since.elapsed() < Duration::from_millis(500) {
        sleep(Duration::from_millis(50));
        let now = read();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

fn slow_heads(relay: &Relay, len: usize) -> Vec<TcpStream> {
    let head = part_of_head(len);
    let slow = |_| {
        let mut client = connect(relay.address("http"));
        client.write_all(&head).unwrap();
        client
    };
    (0..CLIENTS).map(slow).collect()
}

#[test]
fn slow_head_memory_is_within_documented_bound() {
    for (len, bound) in [(5, 4 << 10), (4000, 8 << 10), (63_000, 64 << 10)] {
        let relay = Relay::start(&ARGS);
        let before = memory(&relay);
        let clients = slow_heads(&relay, len);
        let each = (memory(&relay) - before) / CLIENTS;
        assert!(each <= bound + STATE_BYTES, "{len} bytes cost {each}");
        drop(clients);
    }
}

#[test]
fn counts_slow_heads_in_memory_budget() {
    let relay = Relay::start(&[&ARGS[..], &["--memory", "8MiB"]].concat());
    let _greedy: Vec<_> = (0..CLIENTS)
        .map_while(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let source = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 7), 0));
            socket.bind(&source.into()).unwrap();
            socket.connect(&relay.address("http").into()).ok()?;
            let mut client = TcpStream::from(socket);
            set_timeouts(&client);
            // An accepted connection may have been reset for lack of memory.
            client.write_all(&part_of_head(63_000)).ok()?;
            Some(client)
        })
        .collect();
    let (listener, at) = listen_as_origin();
    let mut client = connect(relay.address("http"));
    // With so many connections before it, this one waits tens of seconds on a busy machine.
    client.set_read_timeout(Some(6 * TEST_TIMEOUT)).unwrap();
    write!(client, "CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
    transfer_both_ways(&client, &accept(&listener), 1);
    relay.wait_for_stderr("first one of 127.0.0.7");
}

/// A head in any number of pieces gives the same request, and keeps the bytes behind it.
#[test]
fn accepts_heads_in_pieces() {
    let relay = Relay::start(&ARGS);
    let (listener, at) = listen_as_origin();
    for piece in [1, 7, 4096, 1 << 20] {
        let mut client = connect(relay.address("http"));
        let request = format!("\r\nCONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\nearly");
        for part in request.as_bytes().chunks(piece) {
            client.write_all(part).unwrap();
        }
        assert!(
            read_http_head(&mut client).starts_with("HTTP/1.1 200"),
            "{piece}"
        );
        let mut server = accept(&listener);
        let mut early = [0; 5];
        server.read_exact(&mut early).unwrap();
        assert_eq!(&early, b"early");
        transfer_both_ways(&client, &server, 1);
    }
}

/// Pipelines two requests, the second with a body, and then sends a third.
#[test]
fn serves_pipelined_requests() {
    let relay = Relay::start(&ARGS);
    let (listener, at) = listen_as_origin();
    let mut client = connect(relay.address("http"));
    let body = vec![b'b'; 300_000];
    let first = format!("GET http://{at}/1 HTTP/1.1\r\nHost: x\r\n\r\n");
    let len = body.len();
    let second = format!("POST http://{at}/2 HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
    let mut sending = client.try_clone().unwrap();
    let sent = [first.as_bytes(), second.as_bytes(), &body].concat();
    let sender = std::thread::spawn(move || sending.write_all(&sent).unwrap());
    let mut server = accept(&listener);
    assert!(read_http_head(&mut server).starts_with("GET /1 "));
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .unwrap();
    assert!(read_http_head(&mut client).starts_with("HTTP/1.1 204"));
    assert!(read_http_head(&mut server).starts_with("POST /2 "));
    let mut received = vec![0; len];
    server.read_exact(&mut received).unwrap();
    assert!(received == body);
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .unwrap();
    assert!(read_http_head(&mut client).starts_with("HTTP/1.1 204"));
    sender.join().unwrap();
    let third = format!("GET http://{at}/3 HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(third.as_bytes()).unwrap();
    assert!(read_http_head(&mut server).starts_with("GET /3 "));
}

#[test]
fn rejects_oversized_and_truncated_heads() {
    let relay = Relay::start(&ARGS);
    let mut client = connect(relay.address("http"));
    // The reset of the remaining bytes may arrive first.
    let _ = client.write_all(&part_of_head(100_000));
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let mut client = connect(relay.address("http"));
    client.write_all(b"GET http://x/ HTTP/1.1\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut answer = Vec::new();
    let ended = client.read_to_end(&mut answer);
    assert!(ended.is_err() || answer.is_empty(), "{answer:?}");
}
