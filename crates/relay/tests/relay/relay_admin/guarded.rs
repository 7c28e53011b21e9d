// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to the admin endpoint: refused requests, and clients that try to block others.

use crate::{
    relay_admin::ANY,
    relay_admin::endpoint::{Endpoint, send},
    relay_admin::forwarding,
};
use longhaul_testnet::relay_process::{connect, listen_as_origin, set_timeouts};
use rustix::process::Signal;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
};

fn run_to_exit(args: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.arg("relay").args(args).output().unwrap()
}

#[test]
fn refuses_address_off_loopback() {
    for address in ["0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100"] {
        let output = run_to_exit(&["--socks5", ANY, "--admin", address]);
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
        for word in [address, "loopback", "ssh -L", "reverse proxy"] {
            assert!(log.contains(word), "{log}");
        }
    }
}

/// The error comes before any socket is opened, so it is the only line.
#[test]
fn reports_port_in_use_in_one_line() {
    let occupied = TcpListener::bind(ANY).unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    let output = run_to_exit(&["--socks5", ANY, "--admin", &address]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    let line = log.lines().last().unwrap();
    assert!(line.contains(&format!("--admin {address}")), "{log}");
    assert!(line.contains("in use"), "{log}");
    assert!(!log.contains("listening"), "{log}");
}

#[test]
fn answers_only_own_host_names() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay).0;
    let ask = |request: String| send(endpoint, &request);
    let get = |host: &str| {
        ask(format!(
            "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
    };
    assert_eq!(get(&endpoint.to_string()).status, 200);
    assert_eq!(get("localhost").status, 200);
    let evil = get("evil.example");
    assert_eq!(evil.status, 421);
    assert!(!evil.body.contains("longhaul_"), "{}", evil.body);
    let absolute =
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(absolute.to_owned()).status, 421);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let answer = ask(request);
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
    }
    let head = ask("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned());
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn forbids_access_from_other_origins() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/api/v1/status",
        "/no-such-page",
    ] {
        let head = Endpoint::of(&relay).get(path).head;
        for line in [
            "cache-control: no-store",
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(line), "{path}: {head}");
        }
        assert!(!head.contains("access-control"), "{path}: {head}");
    }
}

/// Clients that never finish a request are disconnected, and others are served meanwhile.
#[test]
fn slow_clients_do_not_block_others() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let slow = |_| {
        let mut stream = connect(endpoint.0);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
        stream
    };
    let some: Vec<_> = (0..20).map(slow).collect();
    assert_eq!(endpoint.get("/").status, 200);
    // More clients than the endpoint has permits: the next one waits until the slow ones time out.
    let many: Vec<_> = (0..60).map(slow).collect();
    assert_eq!(endpoint.get("/").status, 200);
    for stream in some.into_iter().chain(many) {
        assert_ended(stream);
    }
}

fn assert_ended(mut stream: TcpStream) {
    set_timeouts(&stream);
    let mut rest = Vec::new();
    // A reset ends the connection as well as a response.
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn rejects_endless_head() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let mut stream = connect(Endpoint::of(&relay).0);
    let long = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}",
        "x".repeat(100_000)
    );
    // The endpoint may close before all of it is sent.
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(Endpoint::of(&relay).get("/").status, 200);
}

#[test]
fn address_change_requires_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.toml");
    let write = |admin: &str| {
        let text = format!(
            "[[listener]]\nkind = 'socks5'\naddress = '{ANY}'\nname = 's'\n[admin]\naddress = '{admin}'"
        );
        std::fs::write(&file, text).unwrap();
    };
    write(ANY);
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--config"]).arg(&file);
    let relay = longhaul_testnet::relay_process::Relay::spawn_with_listeners(command, 2);
    write("127.0.0.1:9");
    relay.signal(Signal::HUP);
    let log = relay.wait_for_stderr("configuration reloaded");
    assert!(
        log.contains("a change of admin.address needs a restart"),
        "{log}"
    );
    assert_eq!(Endpoint::of(&relay).get("/").status, 200);
}
