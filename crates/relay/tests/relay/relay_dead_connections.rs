// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of dead and idle connections, so that they release their permits: keepalive and idle
//! timeouts.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_reset, connect, dial, listen_as_origin, may_use_namespaces,
    read_array, read_http_head, set_timeouts,
};
use longhaul_testnet::relay_testbed::{IPV4, Testbed};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

/// Returns the configuration of all kinds of listeners. `to` is the destination of the forward
/// listener.
fn listeners(to: SocketAddr) -> String {
    let listener = |kind: &str| format!("[[listener]]\nkind = '{kind}'\naddress = '{ANY}'\n");
    let kinds = ["socks5", "http", "convert"].map(listener).concat();
    format!("{kinds}{}destination = '{to}'\n", listener("forward"))
}

const KINDS: [&str; 4] = ["socks5", "http", "convert", "forward"];

fn tunnel(kind: &str, relay: &Relay, origin: &TcpListener) -> (TcpStream, TcpStream) {
    let to = Destination::Address(origin.local_addr().unwrap());
    let mut client = dial(kind, relay.address(kind), &to).unwrap();
    let mut server = accept(origin);
    client.write_all(b"x").unwrap();
    assert_eq!(read_array(&mut server), *b"x");
    (client, server)
}

/// Returns the idle time before the first keepalive probe; `None` if keepalive is off.
fn keepalive(leg: &TcpStream) -> Option<Duration> {
    let socket = socket2::SockRef::from(leg);
    let is_on = socket.keepalive().unwrap();
    is_on.then(|| socket.tcp_keepalive_time().unwrap())
}

#[test]
fn every_leg_has_keepalive_by_default() {
    let minute = Some(Duration::from_secs(60));
    let off = "[profile.downstream]\nkeepalive = '0s'\n[profile.upstream]\nkeepalive = '0s'\n";
    for (profiles, wanted) in [("", minute), (off, None)] {
        let (listener, address) = listen_as_origin();
        let relay = Relay::start_with_config(&(listeners(address) + profiles), KINDS.len());
        for kind in KINDS {
            let (client, server) = tunnel(kind, &relay, &listener);
            for end in [&client, &server] {
                let leg = relay.socket_to(end.local_addr().unwrap());
                assert_eq!(keepalive(&leg), wanted, "{kind}");
            }
        }
    }
}

/// Also between relays, on pooled connections.
#[test]
fn pooled_connections_have_keepalive() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let near = Relay::start(&[
        "--forward",
        &format!("{ANY}={address}"),
        "--peer",
        &peer,
        "--peer-pool",
        "1",
    ]);
    let (_client, server) = tunnel("forward", &near, &listener);
    let long = near.socket_to(far.address("convert"));
    let minute = Some(Duration::from_secs(60));
    assert_eq!(keepalive(&long), minute);
    assert_eq!(
        keepalive(&far.socket_to(long.local_addr().unwrap())),
        minute
    );
    assert_eq!(
        keepalive(&far.socket_to(server.local_addr().unwrap())),
        minute
    );
}

fn records(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    whole
        .filter(|record: &Value| record["record"] == "connection")
        .collect()
}

#[test]
fn resets_both_ends_of_idle_tunnel() {
    let (listener, address) = listen_as_origin();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("records");
    let limits = format!(
        "[limits]\ntunnel_idle_timeout = '3s'\n[counters]\nfile = '{}'\n",
        file.display()
    );
    let relay = Relay::start_with_config(&(listeners(address) + &limits), KINDS.len());
    let tunnels = KINDS.map(|kind| tunnel(kind, &relay, &listener));
    for (mut client, mut server) in tunnels {
        assert_reset(&mut client);
        assert_reset(&mut server);
    }
    let begin = Instant::now();
    while records(&file).len() < KINDS.len() {
        assert!(begin.elapsed() < TEST_TIMEOUT, "{:?}", records(&file));
        std::thread::sleep(Duration::from_millis(20));
    }
    for record in records(&file) {
        assert_eq!(record["ended"], "reset_by_relay", "{record}");
        let cause = record["cause"].as_str().unwrap();
        assert!(cause.contains("tunnel_idle_timeout"), "{record}");
    }
}

/// UDP ASSOCIATE: the association is the tunnel.
#[test]
fn idle_association_ends() {
    let relay = Relay::start(&["--socks5", ANY, "--tunnel-idle-timeout", "1s"]);
    let mut client = connect(relay.address("socks5"));
    client.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0]);
    client.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let reply: [u8; 10] = read_array(&mut client);
    assert_eq!(reply[1], 0);
    assert_reset(&mut client);
}

/// A client whose host loses its link sends nothing any more. The server gets a RST.
#[test]
fn detects_vanished_client() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("vanish");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "allow_from = ['10.77.1.0/24']\n[[listener]]\nkind = 'forward'\naddress = '{near}:80'\n\
         destination = '{}'\n[[listener]]\nkind = 'http'\naddress = '{near}:3128'\n\
         [profile.downstream]\nkeepalive = '1s'\n",
        IPV4.server_port(8080),
        near = IPV4.downstream
    );
    file.write_all(text.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let relay = Relay::spawn_with_listeners(bed.command(&["--config", path]), 2);
    let listener = bed.listen(IPV4.server_port(8080));
    // The origin is silent: only the client's missing keepalive answers can be detected.
    let mut http_client = bed.connect(relay.address("http")).unwrap();
    let request = format!(
        "GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        IPV4.server_port(8080)
    );
    http_client.write_all(request.as_bytes()).unwrap();
    let mut http_origin = accept(&listener);
    read_http_head(&mut http_origin);
    let mut client = bed.connect(relay.address("forward")).unwrap();
    let mut server = accept(&listener);
    client.write_all(b"x").unwrap();
    assert_eq!(read_array(&mut server), *b"x");
    longhaul_testnet::relay_testbed::run_ip(&bed.client, "link set eth0 down");
    for mut server in [server, http_origin] {
        set_timeouts(&server);
        let error = server.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
