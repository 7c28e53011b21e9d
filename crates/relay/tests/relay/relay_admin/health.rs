// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/healthz` in each state.

use crate::{
    relay_admin::endpoint::{Endpoint, send},
    relay_admin::forwarding,
};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, listen_as_origin, refusing_address,
};
use rustix::process::Signal;
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Instant,
};

#[test]
fn reports_serving_then_draining() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &["--grace", "20s"]);
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/healthz", |health| {
        (health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);

    let client = connect(relay.address("forward"));
    let server = accept(&listener);
    relay.signal(Signal::TERM);
    endpoint.until("/healthz", |health| {
        (health["status"] == "draining").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 503);
    assert_eq!(endpoint.json("/api/v1/connections")["total"], 1);
    drop((client, server));
    let (status, log) = relay.wait();
    assert!(
        status.success() && log.contains("no connection reset"),
        "{log}"
    );
}

/// Load balancers on other hosts learn the status under any name of this host, and nothing else.
#[test]
fn health_endpoint_serves_status_alone_on_any_address() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &["--health", "0.0.0.0:0", "--grace", "20s"]);
    let port = relay.address("health").port();
    let at = std::net::SocketAddr::from(([127, 0, 0, 2], port));
    let ask = |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: relay.example\r\n");
        send(
            at,
            &(head + "Content-Length: 0\r\nConnection: close\r\n\r\n"),
        )
    };
    // A worker that waits for a busy machine is stalled for a while.
    let await_status = |status: &str, code: u16| {
        let body = format!("{{\"status\":\"{status}\"}}\n");
        let begun = Instant::now();
        loop {
            let answer = ask("GET", "/healthz");
            if answer.body == body {
                return assert_eq!(answer.status, code, "{body}");
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "{answer:?}");
        }
    };
    await_status("serving", 200);
    assert_eq!(ask("HEAD", "/healthz").body, "");
    let ready = ask("GET", "/readyz");
    assert_eq!(ready.body, "{\"ready\":true,\"status\":\"serving\"}\n");
    assert_eq!(ready.status, 200);
    for path in [
        "/",
        "/metrics",
        "/api/v1/status",
        "/api/v1/connections",
        "/web/admin.js",
    ] {
        assert_eq!(ask("GET", path).status, 404, "{path}");
    }
    assert_eq!(ask("POST", "/api/v1/release").status, 405);
    let client = connect(relay.address("forward"));
    relay.signal(Signal::TERM);
    await_status("draining", 503);
    let next = [
        "--socks5",
        "127.0.0.1:0",
        "--health",
        &format!("0.0.0.0:{port}"),
    ];
    let _next = Relay::start(&next);
    await_status("serving", 200);
    drop(client);
}

/// A draining process keeps its admin address until its successor asks for it.
#[test]
fn successor_takes_over_address_of_draining_process() {
    let (listener, address) = listen_as_origin();
    let first = forwarding(address, &["--grace", "60s"]);
    let endpoint = Endpoint::of(&first);
    let at = endpoint.0.to_string();
    let mut client = connect(first.address("forward"));
    let mut server = accept(&listener);

    let second = || {
        Command::new(longhaul_testprograms::longhaul())
            .args(["relay", "--socks5", "127.0.0.1:0", "--admin", &at])
            .output()
            .unwrap()
    };
    let refused = second();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("in use"),
        "{refused:?}"
    );

    first.signal(Signal::TERM);
    endpoint.until("/healthz", |health| {
        (health["status"] == "draining").then_some(())
    });
    let next = Relay::start(&["--socks5", "127.0.0.1:0", "--admin", &at]);
    assert_eq!(Endpoint::of(&next).0, endpoint.0);
    // Only the successor answers from now on.
    for _ in 0..20 {
        assert_ne!(endpoint.json("/healthz")["status"], "draining");
    }
    assert_eq!(
        second().status.code(),
        Some(1),
        "a serving process keeps its address"
    );
    // The connection of the first process stays open.
    client.write_all(b"still there").unwrap();
    server.read_exact(&mut [0; 11]).unwrap();
    drop((client, server));
    let (status, log) = first.wait();
    assert!(
        status.success() && log.contains("no connection reset"),
        "{log}"
    );
    endpoint.until("/healthz", |health| {
        (health["status"] == "serving").then_some(())
    });
}

/// The address is released only to a successor, and only while the relay drains.
#[test]
fn release_is_refused_unless_draining() {
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let ask = |field: &str, host: &str| {
        let request = format!(
            "POST /api/v1/release HTTP/1.1\r\nHost: {host}\r\n{field}Content-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        send(endpoint.0, &request).status
    };
    let successor = "Longhaul-Successor: 1\r\n";
    assert_eq!(ask(successor, "localhost"), 409);
    assert_eq!(ask("", "localhost"), 405);
    assert_eq!(ask(successor, "evil.example"), 405);
    assert_eq!(endpoint.get("/").status, 200);
}

/// New connections wait and open ones continue, so the relay should stay in service.
#[test]
fn reports_exhausted_memory_as_healthy() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &["--memory", "256KiB"]);
    let endpoint = Endpoint::of(&relay);
    let client = connect(relay.address("forward"));
    let mut server = accept(&listener);
    // The client never reads, so the data fills the relay's sockets.
    let writer = std::thread::spawn(move || while server.write_all(&[0; 1 << 16]).is_ok() {});
    endpoint.until("/healthz", |health| {
        (health["memory_exhausted"] == true).then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);
    let status = endpoint.json("/api/v1/status");
    let bytes = |key: &str| status["relay"][key].as_u64().unwrap();
    assert_eq!(bytes("memory_budget_bytes"), 256 << 10);
    assert!(bytes("memory_bytes") > 256 << 10, "{status}");
    drop(client);
    writer.join().unwrap();
}

/// Opens connections until the relay has as many as it may have, and waits until it says so.
fn fill(relay: &Relay, listener: &std::net::TcpListener, count: usize) -> Vec<[TcpStream; 2]> {
    let open = |_| [connect(relay.address("forward")), accept(listener)];
    let legs = (0..count).map(open).collect();
    Endpoint::of(relay).until("/healthz", |health| {
        (health["connections_exhausted"] == true).then_some(())
    });
    legs
}

fn metric(endpoint: Endpoint, name: &str) -> f64 {
    let text = endpoint.get("/metrics").body;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.next().unwrap_or_else(|| panic!("no {name}: {text}"));
    value.trim().parse().unwrap()
}

/// A full relay stays alive for a service manager, and a load balancer sends new clients elsewhere.
#[test]
fn full_relay_is_healthy_but_not_ready() {
    let (listener, address) = listen_as_origin();
    let health = ["--health", "127.0.0.1:0"];
    let relay = forwarding(
        address,
        &[&["--max-connections", "5"][..], &health].concat(),
    );
    let for_other_hosts = || {
        let head =
            "GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        send(relay.address("health"), head).status
    };
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/readyz", |health| {
        (health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/readyz").status, 200);
    let mut legs = fill(&relay, &listener, 5);
    assert_eq!(endpoint.get("/healthz").status, 200);
    assert_eq!(endpoint.get("/readyz").status, 503);
    assert_eq!(for_other_hosts(), 503);
    assert_eq!(metric(endpoint, "longhaul_connections_limit"), 5.0);
    assert_eq!(metric(endpoint, "longhaul_connections_taken"), 5.0);
    let waits = "longhaul_limit_waits_total{limit=\"connections\"}";
    assert_eq!(metric(endpoint, waits), 0.0);
    // The sixth waits until another one ends.
    let mut waiting = connect(relay.address("forward"));
    endpoint.until("/api/v1/status", |status| {
        (status["relay"]["limits"]["connections"]["waits"] == 1).then_some(())
    });
    legs.pop();
    waiting.write_all(b"x").unwrap();
    accept(&listener).read_exact(&mut [0; 1]).unwrap();
    drop((legs, waiting));
    endpoint.until("/readyz", |health| {
        (health["connections_exhausted"] == false).then_some(())
    });
    assert_eq!(endpoint.get("/readyz").status, 200);
    let (_, log) = relay.stop();
    let lines = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(lines("all 5 connections are taken"), 1, "{log}");
    assert_eq!(lines("--max-connections"), 1, "{log}");
    assert_eq!(lines("connections are free again"), 1, "{log}");
}

/// If descriptors bound the connections, the log names the limit that can be raised.
#[test]
fn names_descriptor_limit_of_full_relay() {
    let (listener, address) = listen_as_origin();
    let mut command = Command::new("prlimit");
    command.args([
        "--nofile=160:160",
        longhaul_testprograms::longhaul(),
        "relay",
    ]);
    let forward = format!("127.0.0.1:0={address}");
    command.args([
        "--workers",
        "1",
        "--admin",
        "127.0.0.1:0",
        "--forward",
        &forward,
    ]);
    let relay = Relay::spawn_with_listeners(command, 2);
    let limit = metric(Endpoint::of(&relay), "longhaul_connections_limit");
    drop(fill(&relay, &listener, limit as usize));
    let (_, log) = relay.stop();
    let line = format!("all {limit} connections are taken");
    let line = log.lines().find(|text| text.contains(&line));
    assert!(
        line.is_some_and(|line| line.contains("LimitNOFILE=")),
        "{log}"
    );
}

/// A client that has all connections that it may have finds a reset, and the operator a line.
#[test]
fn logs_client_that_has_all_its_connections() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &["--connections-per-client", "2"]);
    let _legs: Vec<_> = (0..2)
        .map(|_| [connect(relay.address("forward")), accept(&listener)])
        .collect();
    for _ in 0..5 {
        let mut refused = connect(relay.address("forward"));
        assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
    }
    let (_, log) = relay.stop();
    assert_eq!(log.matches("connections_per_client").count(), 1, "{log}");
    assert!(log.contains("client has 2 connections"), "{log}");
}

/// All routes lead through a peer that is down; the relay detects it without a client's connection.
#[test]
fn reports_no_upstream_while_only_peer_is_down() {
    let (socket, dead) = refusing_address();
    let (_listener, address) = listen_as_origin();
    let relay = forwarding(address, &["--peer", &dead.to_string()]);
    let endpoint = Endpoint::of(&relay);
    let health = endpoint.until("/healthz", |health| {
        (health["status"] == "no_upstream").then(|| health.clone())
    });
    assert_eq!(health["peers_down"][0], dead.to_string());
    assert_eq!(endpoint.get("/healthz").status, 503);
    // A relay starts at that address.
    drop(socket);
    let _far = Relay::start(&["--convert", &dead.to_string()]);
    endpoint.until("/healthz", |health| {
        (health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);
}

/// With a fallback, the relay serves and names the peer that is down.
#[test]
fn reports_serving_by_fallback_while_peer_is_down() {
    let (_socket, dead) = refusing_address();
    let text = format!(
        "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n\
         [peer.dead]\naddress = '{dead}'\n[[route]]\nvia = ['dead']\nfallback = [[]]\n"
    );
    let relay = Relay::start_with_config(&text, 2);
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/healthz", |health| {
        (health["peers_down"][0] == "dead" && health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);
}
