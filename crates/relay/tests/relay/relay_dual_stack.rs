// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners on `[::]`, which take IPv4 clients too. Such a client counts under its IPv4 address everywhere.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, accept, assert_reset, dial, listen_as_origin, set_timeouts, transfer_both_ways,
};
use socket2::{Domain, Socket, Type};
use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
};

const EVERYWHERE: &str = "[::]:0";

fn connect_from(source: &str, port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: IpAddr = source.parse().unwrap();
    socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
    let relay = SocketAddr::from(([127, 0, 0, 1], port));
    socket.connect(&relay.into()).unwrap();
    let stream = TcpStream::from(socket);
    set_timeouts(&stream);
    stream
}

/// Starts a relay that serves nobody off loopback, with these lines in its listener.
fn start(more: &str) -> Relay {
    Relay::start_with_config(
        &format!(
            "[[listener]]\nkind = 'socks5'\naddress = '{EVERYWHERE}'\n\
             allow_from = ['192.0.2.0/24']\n{more}"
        ),
        1,
    )
}

#[test]
fn takes_clients_of_both_families() {
    let (listener, at) = listen_as_origin();
    let kinds = ["--http", "--socks5", "--convert"].map(|kind| [kind, EVERYWHERE]);
    let args = [&kinds.concat()[..], &["--allow-from", "192.0.2.0/24"]].concat();
    let relay = Relay::start(&args);
    for host in ["127.0.0.1", "::1"] {
        for kind in ["http", "socks5"] {
            let relay_at = SocketAddr::new(host.parse().unwrap(), relay.address(kind).port());
            let client = dial(kind, relay_at, &Destination::Address(at)).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        }
        let convert = relay.address("convert").port();
        let peer = SocketAddr::new(host.parse().unwrap(), convert).to_string();
        let near = Relay::start(&["--http", "127.0.0.1:0", "--peer", &peer]);
        let to = Destination::Address(at);
        let client = dial("http", near.address("http"), &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
}

#[test]
fn ipv4_client_counts_under_its_ipv4_address() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let rules = format!(
        "deny_from = ['127.0.0.3/32']\n[[route]]\nfrom = ['127.0.0.4/32']\ndeny = true\n\
         [counters]\naccess_log = '{}'\n",
        log.path().display()
    );
    let (listener, at) = listen_as_origin();
    let relay = start(&rules);
    let port = relay.address("socks5").port();
    assert_reset(&mut connect_from("127.0.0.3", port));
    let request = [
        &[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..],
        &at.port().to_be_bytes(),
    ]
    .concat();
    for (source, reply) in [("127.0.0.4", 2), ("127.0.0.2", 0)] {
        let mut client = connect_from(source, port);
        client.write_all(&request).unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        // Method, version and reply code, and an IPv4 address.
        assert_eq!(answer, [5, 0, 5, reply, 0, 1], "{source}");
    }
    drop(accept(&listener));
    relay.stop();
    let records = std::fs::read_to_string(log.path()).unwrap();
    assert!(records.contains("\"client\":\"127.0.0.2:"), "{records}");
    assert!(!records.contains("ffff"), "{records}");
}

#[test]
fn leaves_ipv4_to_a_listener_that_has_the_port() {
    // Finds a port that is free in both families.
    let port = {
        let relay = start("");
        relay.address("socks5").port()
    };
    let listeners = format!("allow_from = ['192.0.2.0/24']\n{}", {
        let listener = |kind: &str, host: &str| {
            format!("[[listener]]\nkind = '{kind}'\naddress = '{host}:{port}'\n")
        };
        listener("socks5", "[::]") + &listener("http", "0.0.0.0")
    });
    let relay = Relay::start_with_config(&listeners, 2);
    let (listener, at) = listen_as_origin();
    for (kind, host) in [("http", "127.0.0.1"), ("socks5", "::1")] {
        let relay_at = SocketAddr::new(host.parse().unwrap(), port);
        for _ in 0..8 {
            let client = dial(kind, relay_at, &Destination::Address(at)).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
        }
    }
    drop(relay);
}

#[test]
fn takes_ipv6_alone_if_another_program_has_the_port_on_ipv4() {
    let (other, other_at) = listen_as_origin();
    let listener = format!(
        "[[listener]]\nkind = 'socks5'\naddress = '[::]:{}'\nallow_from = ['192.0.2.0/24']\n",
        other_at.port()
    );
    let relay = Relay::start_with_config(&listener, 1);
    let (listener, at) = listen_as_origin();
    let relay_at = SocketAddr::new("::1".parse().unwrap(), other_at.port());
    let client = dial("socks5", relay_at, &Destination::Address(at)).unwrap();
    transfer_both_ways(&client, &accept(&listener), 1);
    drop(TcpStream::connect(other_at).unwrap());
    accept(&other);
    let (_, log) = relay.stop();
    assert!(log.contains("takes IPv6 alone"), "{log}");
}
