// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/healthz` in each state that a test can bring about.

use crate::{
    endpoint::Endpoint,
    forwarding,
    relay_process::{Relay, accept, connect, origin, refusing},
};
use rustix::process::Signal;
use std::io::Write;

#[test]
fn serving_and_then_draining() {
    let (listener, address) = origin();
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
    let (status, said) = relay.wait();
    assert!(
        status.success() && said.contains("no connection cut"),
        "{said}"
    );
}

/// New connections wait, old ones go on: that is no reason to take the relay out of service.
#[test]
fn a_memory_budget_that_is_used_up_is_said_and_is_healthy() {
    let (listener, address) = origin();
    let relay = forwarding(address, &["--memory", "256KiB"]);
    let endpoint = Endpoint::of(&relay);
    let client = connect(relay.address("forward"));
    let mut server = accept(&listener);
    // The client never reads: what does not fit waits in the relay's sockets.
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

/// The only way on leads through a dead peer: nobody has to find out by a connection.
#[test]
fn cut_off_while_the_only_peer_is_down() {
    let (socket, dead) = refusing();
    let (_listener, address) = origin();
    let relay = forwarding(address, &["--peer", &dead.to_string()]);
    let endpoint = Endpoint::of(&relay);
    let health = endpoint.until("/healthz", |health| {
        (health["status"] == "cut_off").then(|| health.clone())
    });
    assert_eq!(health["peers_down"][0], dead.to_string());
    assert_eq!(endpoint.get("/healthz").status, 503);
    // A relay rises at that address.
    drop(socket);
    let _far = Relay::start(&["--convert", &dead.to_string()]);
    endpoint.until("/healthz", |health| {
        (health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);
}

/// With a fallback it serves, and says what is down.
#[test]
fn serving_by_the_fallback_while_a_peer_is_down() {
    let (_socket, dead) = refusing();
    let text = format!(
        "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n\
         [peer.dead]\naddress = '{dead}'\n[[route]]\nvia = ['dead']\nfallback = [[]]\n"
    );
    let relay = Relay::configured(&text, 2);
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/healthz", |health| {
        (health["peers_down"][0] == "dead" && health["status"] == "serving").then_some(())
    });
    assert_eq!(endpoint.get("/healthz").status, 200);
}
