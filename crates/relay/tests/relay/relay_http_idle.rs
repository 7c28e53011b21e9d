// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP clients that have no request open: keep-alive between requests, and sockets that browsers connect before they
//! need them.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, parse_http_status, read_http_head,
};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";
/// Time-outs for heads: far shorter than the time for which these tests are idle.
const SHORT_HEADS: [&str; 4] = ["--http", ANY, "--handshake-timeout", "200ms"];
const IDLE: Duration = Duration::from_secs(1);

fn post(client: &mut TcpStream, at: SocketAddr) {
    let head = format!("POST http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
    client.write_all(head.as_bytes()).unwrap();
}

/// Serves one POST on the connection, with an empty response.
fn answer(server: &mut TcpStream) {
    assert!(read_http_head(server).starts_with("POST / "));
    server.read_exact(&mut [0]).unwrap();
    server
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
}

fn assert_answered(client: &mut TcpStream) {
    assert_eq!(parse_http_status(&read_http_head(client)), 200);
}

/// Reads an end of the connection that is neither a reset nor an answer.
fn assert_closed_quietly(client: &mut TcpStream) {
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// Waits for records of so many connections.
fn records(file: &Path, count: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let records: Vec<_> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
        if records.len() >= count {
            return records;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{records:?}");
        sleep(Duration::from_millis(10));
    }
}

/// Both legs stay open, the long one to the origin included.
#[test]
fn keeps_idle_client_longer_than_a_head_may_take() {
    let relay = Relay::start(&SHORT_HEADS);
    let (listener, at) = listen_as_origin();
    let mut client = connect(relay.address("http"));
    sleep(IDLE);
    post(&mut client, at);
    let mut server = accept(&listener);
    answer(&mut server);
    assert_answered(&mut client);
    for _ in 0..2 {
        sleep(IDLE);
        post(&mut client, at);
        answer(&mut server);
        assert_answered(&mut client);
    }
}

#[test]
fn keeps_client_idle_behind_a_proxy_header() {
    let relay = Relay::start(&[&SHORT_HEADS[..], &["--accept-proxy"]].concat());
    let (listener, at) = listen_as_origin();
    let mut client = connect(relay.address("http"));
    client
        .write_all(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n")
        .unwrap();
    sleep(IDLE);
    post(&mut client, at);
    answer(&mut accept(&listener));
    assert_answered(&mut client);
}

/// An idle time before the first request is no failure, and neither is one after it.
#[test]
fn closes_idle_clients_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access");
    let relay = Relay::start(&[
        "--http",
        ANY,
        "--http-idle-timeout",
        "300ms",
        "--access-log",
        log.to_str().unwrap(),
    ]);
    let (listener, at) = listen_as_origin();
    let mut preconnected = connect(relay.address("http"));
    let mut client = connect(relay.address("http"));
    post(&mut client, at);
    let mut server = accept(&listener);
    answer(&mut server);
    assert_answered(&mut client);
    assert_closed_quietly(&mut client);
    assert_closed_quietly(&mut preconnected);
    assert_closed_quietly(&mut server);
    for record in records(&log, 2) {
        assert_eq!(record["ended"], "finished", "{record}");
        assert_eq!(record["cause"], Value::Null, "{record}");
    }
}

/// The first head, and one after an idle time.
#[test]
fn slow_heads_get_408() {
    let relay = Relay::start(&[
        "--http",
        ANY,
        "--handshake-timeout",
        "300ms",
        "--http-idle-timeout",
        "10m",
    ]);
    let (listener, at) = listen_as_origin();
    for earlier in [false, true] {
        let mut client = connect(relay.address("http"));
        if earlier {
            post(&mut client, at);
            answer(&mut accept(&listener));
            assert_answered(&mut client);
        }
        client.write_all(b"GET http://x/ HTTP/1.1\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("limits.handshake_timeout"), "{answer}");
    }
}

/// A relay with all its connections in use closes the client that is idle longest. A client with an open request stays.
#[test]
fn full_relay_serves_new_client_instead_of_idle_one() {
    let relay = Relay::start(&["--http", ANY, "--max-connections", "3", "--workers", "1"]);
    let (listener, at) = listen_as_origin();
    let mut busy = connect(relay.address("http"));
    post(&mut busy, at);
    let mut busy_server = accept(&listener);
    let mut idle = [(), ()].map(|()| {
        let mut client = connect(relay.address("http"));
        post(&mut client, at);
        answer(&mut accept(&listener));
        assert_answered(&mut client);
        client
    });
    let mut new = connect(relay.address("http"));
    post(&mut new, at);
    answer(&mut accept(&listener));
    assert_answered(&mut new);
    assert_closed_quietly(&mut idle[0]);
    answer(&mut busy_server);
    assert_answered(&mut busy);
    post(&mut idle[1], at);
    assert_answered_by_any(&listener, &mut idle[1]);
}

/// Serves a request on a new connection of the relay.
fn assert_answered_by_any(listener: &std::net::TcpListener, client: &mut TcpStream) {
    answer(&mut accept(listener));
    assert_answered(client);
}

#[test]
fn draining_relay_closes_idle_clients_at_once() {
    let relay = Relay::start(&["--http", ANY, "--grace", "10m"]);
    let (listener, at) = listen_as_origin();
    let _preconnected = connect(relay.address("http"));
    let mut client = connect(relay.address("http"));
    post(&mut client, at);
    answer(&mut accept(&listener));
    assert_answered(&mut client);
    let (_, log) = relay.stop();
    assert!(log.contains("no connection reset"), "{log}");
}
