// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers through every listener, directly and through one and two peers, with splice and with
//! copying: both directions at once, every byte in order, each FIN relayed.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{Relay, accept, dial, listen_as_origin, transfer_both_ways};
use std::net::SocketAddr;

const LISTENERS: [&str; 4] = ["socks5", "http", "forward", "convert"];

/// Starts a relay with every listener, and `peers` relays behind it.
fn chain(mode: &str, peers: usize, origin: SocketAddr) -> Vec<Relay> {
    let any = "127.0.0.1:0";
    let convert = ["--convert", any, "--mode", mode];
    let mut relays: Vec<_> = (0..peers).map(|_| Relay::start(&convert)).collect();
    let forward = format!("{any}={origin}");
    let listeners = ["--socks5", any, "--http", any, "--forward", &forward];
    let mut args: Vec<String> = [listeners.as_slice(), &convert]
        .concat()
        .iter()
        .map(|s| (*s).into())
        .collect();
    for relay in &relays {
        args.extend(["--peer".to_owned(), relay.address("convert").to_string()]);
    }
    relays.insert(0, Relay::start(&args));
    relays
}

#[test]
fn relays_through_every_listener_and_route() {
    let (listener, address) = listen_as_origin();
    for mode in ["splice", "copy"] {
        for peers in 0..=2 {
            let relays = chain(mode, peers, address);
            for kind in LISTENERS {
                eprintln!("{kind}, {peers} peers, {mode}");
                let to = Destination::Address(address);
                let client = dial(kind, relays[0].address(kind), &to).unwrap();
                transfer_both_ways(&client, &accept(&listener), 4);
            }
        }
    }
}

#[test]
fn relays_64_mib_both_ways_at_once() {
    let (listener, address) = listen_as_origin();
    for mode in ["splice", "copy"] {
        let relays = chain(mode, 1, address);
        let to = Destination::Address(address);
        let client = dial("socks5", relays[0].address("socks5"), &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 64);
    }
}

#[test]
fn last_relay_resolves_names() {
    let (listener, address) = listen_as_origin();
    let to = Destination::from_host("localhost", address.port()).unwrap();
    let relays = chain("splice", 2, address);
    for kind in ["socks5", "http", "convert"] {
        let client = dial(kind, relays[0].address(kind), &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
}

#[test]
fn relays_through_pipes_smaller_than_a_segment() {
    let (listener, address) = listen_as_origin();
    let forward = format!("127.0.0.1:0={address}");
    let relay = Relay::start(&["--forward", &forward, "--pipe-size", "4096B"]);
    let client = dial(
        "forward",
        relay.address("forward"),
        &Destination::Address(address),
    )
    .unwrap();
    transfer_both_ways(&client, &accept(&listener), 8);
}
