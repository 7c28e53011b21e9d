// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/healthz` in each state that a test can bring about.

use crate::{
    endpoint::Endpoint,
    forwarding,
    relay_process::{accept, connect, origin},
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
