// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy: allowed clients and destinations, routes, rate limits and the memory budget.

use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, assert_connect_reset, connect, dial, listen_as_origin, receive,
    refusing_address, send, transfer_both_ways,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const SOCKS5: &str = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\nname = 'in'\n";

fn socks5(more: &str) -> Relay {
    Relay::start_with_config(&format!("{SOCKS5}{more}"), 1)
}

fn ask(relay: &Relay, to: &str) -> Result<std::net::TcpStream, u16> {
    let to: Destination = to.parse().unwrap();
    dial("socks5", relay.address("socks5"), &to)
}

/// RFC 1928 §6: not allowed by ruleset.
const NOT_ALLOWED: Option<u16> = Some(2);

#[test]
fn denied_address_is_unreachable_by_name() {
    let (listener, address) = listen_as_origin();
    let relay = socks5("[[route]]\nto = ['127.0.0.0/8', '::1']\ndeny = true");
    assert_eq!(ask(&relay, &address.to_string()).err(), NOT_ALLOWED);
    let by_name = format!("localhost:{}", address.port());
    assert_eq!(ask(&relay, &by_name).err(), NOT_ALLOWED);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the destination was reached");
}

/// Translators and tunnels extract an IPv4 address from IPv6 addresses. A rule may be written with
/// a mapped address.
#[test]
fn denies_ipv4_address_inside_ipv6_address() {
    for network in ["192.0.2.0/24", "::ffff:192.0.2.0/120"] {
        let relay = socks5(&format!("[[route]]\nto = ['{network}']\ndeny = true"));
        for host in [
            "192.0.2.1",
            "[::ffff:192.0.2.1]",
            "[64:ff9b::192.0.2.1]",
            "[64:ff9b:1::192.0.2.1]",
            "[::192.0.2.1]",
            "[::ffff:0:192.0.2.1]",
            "[2002:c000:201::1]",
        ] {
            let refused = ask(&relay, &format!("{host}:80")).err();
            assert_eq!(refused, NOT_ALLOWED, "{network} {host}");
        }
    }
}

#[test]
fn rules_match_ports_and_names() {
    let (listener, address) = listen_as_origin();
    let port = address.port();
    let relay = socks5(&format!(
        "[[route]]\nto = ['LOCALHOST']\ndeny = true\n\
         [[route]]\nports = [{port}]\n[[route]]\ndeny = true"
    ));
    let client = ask(&relay, &address.to_string()).unwrap();
    transfer_both_ways(&client, &accept(&listener), 1);
    let localhost = format!("localhost:{port}");
    assert_eq!(ask(&relay, &localhost).err(), NOT_ALLOWED);
    let (_other_listener, other) = listen_as_origin();
    assert_eq!(ask(&relay, &other.to_string()).err(), NOT_ALLOWED);
}

#[test]
fn denied_client_is_reset() {
    let relay = socks5("deny_from = ['127.0.0.0/8']");
    assert_connect_reset(TcpStream::connect(relay.address("socks5")));
}

#[test]
fn falls_back_if_first_peer_is_down() {
    let (_socket, away) = refusing_address();
    let far = Relay::start(&["--convert", "127.0.0.1:0"]);
    let there = far.address("convert");
    let peers = format!("[peer.a]\naddress = '{away}'\n[peer.b]\naddress = '{there}'\n");
    for fallback in ["[['b']]", "[[]]", "[['a'], ['b']]"] {
        let (listener, address) = listen_as_origin();
        let route = format!("[[route]]\nvia = ['a']\nfallback = {fallback}");
        let relay = socks5(&format!("{peers}{route}"));
        let client = ask(&relay, &address.to_string()).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    let relay = socks5(&format!("{peers}[[route]]\nvia = ['a']"));
    let answer = ask(&relay, "127.0.0.1:9").err();
    assert_eq!(
        answer,
        Some(3),
        "network unreachable: no destination was tried"
    );
}

/// A refusal by the destination behind the peer is the answer, and no reason to try another chain.
#[test]
fn refusal_behind_peer_is_final() {
    let (_socket, closed) = refusing_address();
    let far = Relay::start(&["--convert", "127.0.0.1:0"]);
    let there = far.address("convert");
    let relay = socks5(&format!(
        "[peer.a]\naddress = '{there}'\n[[route]]\nvia = ['a']\nfallback = [[]]"
    ));
    assert_eq!(ask(&relay, &closed.to_string()).err(), Some(5));
}

/// 3 MiB at 40 Mbit/s take 0.63 s minus a burst: the limit is a minimum for the time, whatever the
/// machine's load.
#[test]
fn rate_limits_apply_to_sum_of_connections() {
    for key in ["rate", "rate_per_client"] {
        for mode in ["splice", "copy"] {
            let (listener, address) = listen_as_origin();
            let relay = socks5(&format!(
                "{key} = '40mbit'\n[profile.upstream]\nmode = '{mode}'"
            ));
            let pairs = [(); 3].map(|()| {
                let client = ask(&relay, &address.to_string()).unwrap();
                (client, accept(&listener))
            });
            let start = Instant::now();
            std::thread::scope(|scope| {
                for (client, server) in &pairs {
                    scope.spawn(|| send(client, 7, 1));
                    scope.spawn(|| receive(server, 7, 1));
                }
            });
            let floor = Duration::from_millis(500);
            assert!(
                start.elapsed() > floor,
                "{key} {mode}: {:?}",
                start.elapsed()
            );
        }
    }
}

/// A client that reads nothing makes the relay exceed its memory budget. The next client waits
/// until the first one has disconnected.
#[test]
fn new_connections_wait_while_memory_is_exhausted() {
    let (listener, address) = listen_as_origin();
    let relay = socks5("[limits]\nmemory = '300KB'\nworkers = 1");
    let client = ask(&relay, &address.to_string()).unwrap();
    let mut server = accept(&listener);
    server.set_nonblocking(true).unwrap();
    fill(&mut server);
    let mut waiting = connect(relay.address("socks5"));
    waiting.write_all(&[5, 1, 0]).unwrap();
    waiting
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    assert!(waiting.read(&mut [0; 2]).is_err(), "served over the budget");
    assert_eq!(
        client.peek(&mut [0; 4]).unwrap(),
        4,
        "the old connection is open"
    );
    drop(client);
    waiting.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    waiting.read_exact(&mut [0; 2]).unwrap();
    let (status, stderr) = relay.stop();
    assert!(status.success());
    assert!(stderr.contains("limits.memory"), "{stderr}");
    assert!(stderr.contains("accepting again"), "{stderr}");
}

/// Writes until no progress is made for a while.
fn fill(stream: &mut std::net::TcpStream) {
    let mut idle = 0;
    while idle < 20 {
        match stream.write(&[0; 1 << 16]) {
            Ok(_) => idle = 0,
            Err(_) => idle += 1,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn reports_line_and_column_of_config_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nconections = 1\n").unwrap();
    let output = std::process::Command::new(longhaul_testprograms::longhaul())
        .args(["relay", "--check-config", "--config"])
        .arg(file.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(":2:1: unknown field"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn flags_add_to_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SOCKS5).unwrap();
    let check = |more: &[&str]| {
        let output = std::process::Command::new(longhaul_testprograms::longhaul())
            .args(["relay", "--check-config", "--config"])
            .arg(file.path())
            .args(more)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let port: SocketAddr = "127.0.0.1:3128".parse().unwrap();
    let (code, log) = check(&["--http", &port.to_string()]);
    assert_eq!(code, Some(0));
    let file_s_and_flag_s = ["in: socks5 127.0.0.1:0", "http 127.0.0.1:3128"];
    assert!(file_s_and_flag_s.iter().all(|l| log.contains(l)), "{log}");
    assert_eq!(check(&["--http", "10.0.0.1:3128"]).0, Some(2));
}
