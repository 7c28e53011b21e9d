// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/metrics`: well-formed, and the values are what was moved.

use crate::{
    ANY,
    endpoint::Endpoint,
    forwarding,
    openmetrics::Exposition,
    relay_process::{Relay, accept, connect, dial, exchange, origin, refusing},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};
use wire::destination::Destination;

const MIB: f64 = 1024.0 * 1024.0;

fn scraped(endpoint: Endpoint) -> Exposition {
    let answer = endpoint.get("/metrics");
    assert_eq!(answer.status, 200);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(answer.head.contains(kind), "{}", answer.head);
    Exposition::parse(&answer.body)
}

/// What has ended is counted when its record is written: soon after its last byte.
fn after_all_have_ended(endpoint: Endpoint) -> Exposition {
    let is_idle = |status: &serde_json::Value| status["relay"]["total"]["active"] == 0;
    endpoint.until("/api/v1/status", |status| is_idle(status).then_some(()));
    // The survey may be a second older than the counters.
    endpoint.until("/api/v1/status", |status| {
        let legs = status["legs"].as_array().unwrap();
        let open = |leg: &serde_json::Value| leg["limited_by"].as_object().unwrap().len();
        legs.iter().all(|leg| open(leg) == 0).then_some(())
    });
    scraped(endpoint)
}

/// Neither side ends before it has all: what waits in a socket when the relay closes it is sent by
/// the kernel, unseen.
fn deliver_both_ways(client: &TcpStream, server: &TcpStream, mib: usize) {
    let write = |mut to: &TcpStream| to.write_all(&vec![5; mib << 20]).unwrap();
    let read = |mut from: &TcpStream| from.read_exact(&mut vec![0; mib << 20]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| write(client));
        scope.spawn(|| write(server));
        scope.spawn(|| read(client));
        scope.spawn(|| read(server));
    });
}

#[test]
fn values_are_what_was_moved() {
    let (listener, address) = origin();
    let (_socket, closed) = refusing();
    let relay = forwarding(address, &["--socks5", ANY]);
    let endpoint = Endpoint::of(&relay);
    for _ in 0..2 {
        let client = connect(relay.address("forward"));
        deliver_both_ways(&client, &accept(&listener), 3);
    }
    let refused = dial(
        "socks5",
        relay.address("socks5"),
        &Destination::Address(closed),
    );
    assert_eq!(refused.err(), Some(5));

    let found = after_all_have_ended(endpoint);
    let of = |name, labels: &[&str]| found.sum(name, &[&[r#"kind="forward""#], labels].concat());
    let up = [r#"direction="up""#];
    let down = [r#"direction="down""#];
    assert_eq!(of("longhaul_listener_connections_total", &[]), 2.0);
    assert_eq!(of("longhaul_listener_connections_open", &[]), 0.0);
    assert_eq!(of("longhaul_listener_relayed_bytes_total", &up), 6.0 * MIB);
    assert_eq!(
        of("longhaul_listener_relayed_bytes_total", &down),
        6.0 * MIB
    );
    assert_eq!(of("longhaul_listener_failures_total", &[]), 0.0);
    let cause = [r#"kind="socks5""#, r#"cause="connection refused""#];
    assert_eq!(found.sum("longhaul_listener_failures_total", &cause), 1.0);
    assert_eq!(found.sum("longhaul_listener_failures_total", &[]), 1.0);

    let name = format!(r#"listener="{}""#, relay.address("forward"));
    for leg in [r#"leg="near""#, r#"leg="far""#] {
        let sent = found.sum("longhaul_leg_sent_bytes_total", &[&name, leg]);
        let again = found.sum("longhaul_leg_retransmitted_bytes_total", &[&name, leg]);
        assert_eq!(sent - again, 6.0 * MIB, "{leg}");
        assert_eq!(found.sum("longhaul_legs_open", &[&name, leg]), 0.0);
    }
    assert_eq!(found.sum("longhaul_serving", &[]), 1.0);
    assert_eq!(found.sum("longhaul_build_info", &[r#"version=""#]), 1.0);
}

#[test]
fn every_metric_is_in_the_manual() {
    let (listener, address) = origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = forwarding(address, &["--peer", &peer]);
    let client = connect(relay.address("forward"));
    exchange(&client, &accept(&listener), 1);
    let found = after_all_have_ended(Endpoint::of(&relay));
    let manual = include_str!("../../../../docs/admin.md");
    for family in found.families() {
        let suffix = match found.kind(family) {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let written = format!("`{family}{suffix}`");
        assert!(manual.contains(&written), "docs/admin.md lacks {written}");
    }
}

#[test]
fn a_peer_has_its_own() {
    let (listener, address) = origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert");
    let relay = forwarding(address, &["--peer", &peer.to_string(), "--peer-pool", "1"]);
    let endpoint = Endpoint::of(&relay);
    let client = connect(relay.address("forward"));
    deliver_both_ways(&client, &accept(&listener), 2);
    drop(client);
    let found = after_all_have_ended(endpoint);
    let label = format!(r#"peer="{peer}""#);
    let of = |name, labels: &[&str]| found.sum(name, &[&[&*label], labels].concat());
    assert_eq!(of("longhaul_peer_up", &[]), 1.0);
    assert_eq!(of("longhaul_peer_connections_total", &[]), 1.0);
    assert_eq!(of("longhaul_peer_connections_open", &[]), 0.0);
    for direction in [r#"direction="up""#, r#"direction="down""#] {
        assert_eq!(
            of("longhaul_peer_relayed_bytes_total", &[direction]),
            2.0 * MIB
        );
    }
    assert!(of("longhaul_leg_sent_bytes_total", &[r#"leg="far""#]) >= 2.0 * MIB);

    drop(far);
    // A connection that is opened now finds it out.
    drop(connect(relay.address("forward")));
    endpoint.until("/api/v1/status", |status| {
        let down = !status["peers"][0]["down_s"].is_null();
        if !down {
            drop(connect(relay.address("forward")));
        }
        down.then_some(())
    });
    let found = scraped(endpoint);
    assert_eq!(found.sum("longhaul_peer_up", &[&label]), 0.0);
    assert!(found.sum("longhaul_peer_failures_total", &[&label]) >= 1.0);
}

/// However many clients come, they make no new series.
#[test]
fn clients_make_no_series() {
    let (listener, address) = origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let one = || {
        let client = connect(relay.address("forward"));
        exchange(&client, &accept(&listener), 1);
    };
    one();
    let before = after_all_have_ended(endpoint);
    (0..5).for_each(|_| one());
    let after = after_all_have_ended(endpoint);
    assert_eq!(before.series(), after.series());
}
