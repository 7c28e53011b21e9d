// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay as a service: counters, records, draining, and a lack of descriptors.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, parse_http_status, read_array, read_http_head,
    refusing_address, transfer_both_ways,
};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::Shutdown,
    process::Command,
    time::Duration,
};

const ANY: &str = "127.0.0.1:0";

fn records(path: &std::path::Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let all = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut records: Vec<_> = all.filter(|record| record["record"] == kind).collect();
    // Two connections that end at once write their records in any order.
    records.sort_by_key(|record| record["cause"].is_string());
    records
}

#[test]
fn writes_counters_and_records() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.jsonl");
    let (listener, address) = listen_as_origin();
    let access_log = directory.path().join("access.jsonl");
    let relay = Relay::start(&[
        "--socks5",
        ANY,
        "--counters",
        file.to_str().unwrap(),
        "--access-log",
        access_log.to_str().unwrap(),
        "--interval",
        "50ms",
    ]);
    let to = Destination::Address(address);
    let client = dial("socks5", relay.address("socks5"), &to).unwrap();
    let server = accept(&listener);
    transfer_both_ways(&client, &server, 3);
    drop((client, server, listener));
    let (_held, closed) = refusing_address();
    let to = Destination::Address(closed);
    assert!(dial("socks5", relay.address("socks5"), &to).is_err());
    assert!(relay.stop().0.success());

    let connections = records(&file, "connection");
    assert_eq!(connections.len(), 2);
    assert_eq!(records(&access_log, "connection"), connections);
    assert_eq!(records(&access_log, "relay"), [Value::Null; 0]);
    let done = &connections[0];
    assert_eq!(done["ended"], "finished");
    assert_eq!(done["destination"], address.to_string());
    assert_eq!(done["bytes_up"], 3 << 20);
    assert_eq!(done["bytes_down"], 3 << 20);
    assert!(done["downstream"]["rtt_us"].as_u64().unwrap() > 0);
    assert!(done["upstream"]["received_bytes"].as_u64().unwrap() >= 3 << 20);
    assert_eq!(connections[1]["cause"], "connection refused");

    let last = records(&file, "relay").pop().unwrap();
    assert_eq!(last["total"]["accepted"], 2);
    assert_eq!(last["total"]["active"], 0);
    assert_eq!(last["total"]["bytes_up"], 3 << 20);
    assert_eq!(last["total"]["bytes_buffered"], 0);
    assert_eq!(last["listeners"][0]["failed"]["connection refused"], 1);
}

#[test]
fn sigterm_lets_connections_finish() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--forward", &format!("{ANY}={address}")]);
    let client = connect(relay.address("forward"));
    let server = accept(&listener);
    relay.signal(Signal::TERM);
    transfer_both_ways(&client, &server, 16);
    let (status, log) = relay.wait();
    assert!(status.success());
    assert!(log.contains("no connection reset"), "{log}");
}

#[test]
fn resets_connections_after_grace_period() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--forward", &format!("{ANY}={address}"), "--grace", "100ms"]);
    let mut client = connect(relay.address("forward"));
    let mut server = accept(&listener);
    let (status, log) = relay.stop();
    assert!(status.success());
    assert!(log.contains("1 connections reset"), "{log}");
    for end in [&mut client, &mut server] {
        let error = end.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn connections_over_limit_wait() {
    let (listener, address) = listen_as_origin();
    let forward = format!("{ANY}={address}");
    let relay = Relay::start(&[
        "--forward",
        &forward,
        "--max-connections",
        "1",
        "--workers",
        "1",
    ]);
    let first = connect(relay.address("forward"));
    let server = accept(&listener);
    let mut second = connect(relay.address("forward"));
    second.write_all(b"x").unwrap();
    // The first connection continues, and only its end admits the second one.
    listener.set_nonblocking(true).unwrap();
    transfer_both_ways(&first, &server, 1);
    listener.set_nonblocking(false).unwrap();
    assert_eq!(read_array(&mut accept(&listener)), *b"x");
}

#[test]
fn connections_wait_for_descriptors() {
    const CLIENTS: u8 = 100;
    let (listener, address) = listen_as_origin();
    let mut command = Command::new("sh");
    let script = r#"ulimit -n 128; exec "$@""#;
    command.args([
        "-c",
        script,
        "sh",
        longhaul_testprograms::longhaul(),
        "relay",
        "--workers",
        "1",
    ]);
    command.args(["--forward", &format!("{ANY}={address}")]);
    let relay = Relay::spawn(command);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| connect(relay.address("forward")))
        .collect();
    for (client, number) in clients.iter_mut().zip(0..) {
        client.write_all(&[number]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    let mut seen: Vec<u8> = (0..CLIENTS)
        .map(|_| read_array::<1>(&mut accept(&listener))[0])
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..CLIENTS));
}

fn reply(server: &mut std::net::TcpStream, response: &str) -> String {
    let head = read_http_head(server);
    server.write_all(response.as_bytes()).unwrap();
    head
}

#[test]
fn http_connection_serves_several_requests() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY]);
    let mut client = connect(relay.address("http"));
    let get = format!("GET http://{address}/a HTTP/1.1\r\nHost: x\r\nKeep-Alive: 5\r\n\r\n");
    client.write_all(get.as_bytes()).unwrap();
    let mut server = accept(&listener);
    for _ in 0..3 {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        let seen = reply(&mut server, chunked).to_ascii_lowercase();
        assert!(seen.starts_with("get /a http/1.1\r\n"), "{seen}");
        assert!(
            seen.contains("via: 1.1 longhaul-") && !seen.contains("keep-alive"),
            "{seen}"
        );
        assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
        assert_eq!(read_array(&mut client), *b"2\r\nhi\r\n0\r\n\r\n");
        client.write_all(get.as_bytes()).unwrap();
    }
}

#[test]
fn closes_idle_http_connection_by_fin() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY, "--http-idle-timeout", "300ms"]);
    let mut client = connect(relay.address("http"));
    write!(client, "GET http://{address}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut server = accept(&listener);
    reply(&mut server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 200);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn detects_http_proxy_loop() {
    let relay = Relay::start(&["--http", ANY]);
    let itself = relay.address("http");
    let mut client = connect(itself);
    // A request with the relay's own Via field, as on a circular route.
    let (listener, origin) = listen_as_origin();
    write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let seen = reply(
        &mut accept(&listener),
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    let via = seen
        .lines()
        .find(|l| l.to_ascii_lowercase().starts_with("via:"))
        .unwrap();
    let mut again = connect(itself);
    write!(
        again,
        "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n{via}\r\n\r\n"
    )
    .unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut again)), 508);
}

#[test]
fn reset_origin_does_not_complete_response() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY]);
    let mut client = connect(relay.address("http"));
    // HTTP/1.0 and no length: the end of the stream is the end of the body.
    write!(client, "GET http://{address}/ HTTP/1.0\r\n\r\n").unwrap();
    let mut server = accept(&listener);
    reply(&mut server, "HTTP/1.0 200 OK\r\n\r\nhalf");
    let head = read_http_head(&mut client);
    assert_eq!(parse_http_status(&head), 200);
    assert_eq!(read_array(&mut client), *b"half");
    longhaul_linux::socket::reset_on_close(&server).unwrap();
    drop(server);
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn forwards_bytes_sent_with_connect() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY]);
    let mut client = connect(relay.address("http"));
    write!(client, "CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\neager").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut server = accept(&listener);
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"eager");
}

#[test]
fn curl_works_with_every_kind_of_proxy() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--socks5", ANY, "--http", ANY]);
    let (socks5, http) = (relay.address("socks5"), relay.address("http"));
    let by_name = format!("http://localhost:{}/", address.port());
    let by_address = format!("http://{address}/");
    let server = std::thread::spawn(move || serve_pages(&listener, 4));
    for (proxy, url, tunnel) in [
        (format!("socks5://{socks5}"), &by_address, false),
        (format!("socks5h://{socks5}"), &by_name, false),
        (format!("http://{http}"), &by_address, false),
        (format!("http://{http}"), &by_name, true),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-x", &proxy, url]);
        if tunnel {
            curl.arg("--proxytunnel");
        }
        let output = curl.output().unwrap();
        assert!(output.stdout == page(), "{proxy} {url}: {output:?}");
    }
    server.join().unwrap();
}

fn page() -> Vec<u8> {
    (0..1_000_000u32).map(|n| (n * 7 / 3) as u8).collect()
}

fn serve_pages(listener: &std::net::TcpListener, count: usize) {
    for _ in 0..count {
        let mut server = accept(listener);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n";
        reply(&mut server, head);
        server.write_all(&page()).unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
    }
}

/// The limit leaves too few descriptors for some thread. The relay either has its worker, or it
/// exits and logs the reason.
#[test]
fn exits_if_worker_cannot_start() {
    let mut ended = 0;
    for held in 60..70 {
        // The relay inherits the descriptors of the shell.
        let line = format!(
            "ulimit -n 70; for fd in $(seq 10 {held}); do eval \"exec $fd</dev/null\"; done; \
             exec '{}' relay --workers 1 --forward {ANY}=127.0.0.1:9",
            longhaul_testprograms::longhaul()
        );
        let output = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", &line]).stderr(output.reopen().unwrap());
        let mut child = KillOnDrop(command.spawn().unwrap());
        let log = || std::fs::read_to_string(output.path()).unwrap();
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait().unwrap() {
                break Some(status);
            }
            // A thread that fails at its start has exited by then. If it has not, the failure is
            // only missed.
            std::thread::sleep(Duration::from_millis(50));
            let settled = start.elapsed() > Duration::from_millis(300);
            if settled && log().contains("listening") && has_worker(child.0.id()) {
                break None;
            }
            let in_time = start.elapsed() < longhaul_testnet::relay_process::TEST_TIMEOUT;
            assert!(in_time, "{held}: neither serves nor ends: {}", log());
        };
        if let Some(status) = status {
            assert_eq!(status.code(), Some(1), "{held}: {}", log());
            let why = log().contains("Too many open files");
            assert!(why, "{held}: {}", log());
            ended += 1;
        }
    }
    assert!(ended > 0, "no limit was low enough");
}

/// Child process that is killed on drop.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the process has a worker thread.
fn has_worker(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut names = threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("comm")));
    names.any(|name| name.trim() == "relay-0")
}
