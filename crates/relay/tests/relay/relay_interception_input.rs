// SPDX-License-Identifier: MIT OR Apache-2.0
//! INPUT rules of the relay's host that drop what the relay intercepts: connections bypass it until the rules accept
//! them.

use longhaul_testnet::relay_process::{Relay, TEST_TIMEOUT, may_use_namespaces, set_timeouts};
use longhaul_testnet::relay_testbed::{Addresses, BOTH, INTERCEPT, IPV4, Testbed};
use std::{
    io::{Read, Write},
    process::Stdio,
    thread::spawn,
    time::Instant,
};

/// A policy of drop, as ufw and firewalld generate it: loopback, answers and ICMPv6 are accepted.
const POLICY: &str =
    "table inet filter { chain input { type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname lo accept
    meta l4proto ipv6-icmp accept; }
}";

const ACCEPT: &str = "insert rule inet filter input meta mark 0x4c480c39 accept";

fn nft(bed: &Testbed, script: &str) {
    let mut nft = bed.command_on_router("nft");
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let input = nft.stdin.take().unwrap().write_all(script.as_bytes());
    assert!(nft.wait().unwrap().success() && input.is_ok(), "{script}");
}

/// Serves both families: a client is told the address that the server sees. A relay that verifies may connect as well,
/// for a client that then bypasses it.
fn serve(bed: &Testbed, port: u16) {
    for family in &BOTH {
        let listener = bed.listen(family.server_port(port));
        listener.set_nonblocking(false).unwrap();
        spawn(move || {
            while let Ok((mut server, from)) = listener.accept() {
                let _ = write!(server, "{}", from.ip());
            }
        });
    }
}

/// Makes a connection, and returns whether the relay carries it.
fn is_relayed(bed: &Testbed, family: &Addresses, port: u16) -> bool {
    let mut client = bed.connect(family.server_port(port)).unwrap();
    set_timeouts(&client);
    let mut from = String::new();
    client.read_to_string(&mut from).unwrap();
    from == family.upstream.to_string()
}

fn wait_until_relayed(bed: &Testbed, family: &Addresses) {
    let began = Instant::now();
    while !is_relayed(bed, family, 8080) {
        assert!(began.elapsed() < TEST_TIMEOUT, "{}", family.client);
    }
}

fn stop(relay: Relay) -> String {
    let (status, log) = relay.stop();
    assert!(status.success(), "{log}");
    log
}

#[test]
fn connections_bypass_relay_until_input_accepts_them() {
    if !may_use_namespaces() {
        return;
    }
    for more in [&[][..], &["--verify-connect"]] {
        let bed = Testbed::new("input");
        serve(&bed, 8080);
        nft(&bed, POLICY);
        let relay = bed.relay(&[&INTERCEPT[..], more].concat());
        for listener in ["127.0.0.1:3129", "[::1]:3129"] {
            let line = format!("{listener}: INPUT rules of this host (inet filter input) drop");
            relay.wait_for_stderr(&line);
        }
        for family in &BOTH {
            for _ in 0..3 {
                assert!(!is_relayed(&bed, family, 8080), "{}", family.client);
            }
        }
        let log = relay.wait_for_stderr("not intercepting: [::1]:3129");
        assert!(log.contains("not intercepting: 127.0.0.1:3129"), "{log}");
        assert!(log.contains("meta mark 0x4c480c39 accept"), "{log}");
        nft(&bed, ACCEPT);
        BOTH.iter()
            .for_each(|family| wait_until_relayed(&bed, family));
        let log = stop(relay);
        assert_eq!(log.matches("not intercepting").count(), 2, "{log}");
        let log = stop(bed.relay(&[&INTERCEPT[..], more].concat()));
        assert!(!log.contains("INPUT rules"), "{log}");
    }
}

/// A rule that comes while the relay runs, and one that answers instead of dropping.
#[test]
fn connections_bypass_relay_after_rule_that_rejects() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("input-reject");
    serve(&bed, 8080);
    let relay = bed.relay(&INTERCEPT);
    assert!(is_relayed(&bed, &IPV4, 8080));
    let reject = "table ip filter { chain INPUT { type filter hook input priority filter;
        iifname near tcp dport 8080-8089 reject with tcp reset; }
        }";
    nft(&bed, reject);
    let began = Instant::now();
    while let Err(error) = bed.connect(IPV4.server_port(8080)) {
        assert!(began.elapsed() < TEST_TIMEOUT, "{error}");
    }
    let log = relay.wait_for_stderr("not intercepting");
    assert!(log.contains("0x4c480c39"), "{log}");
}

/// Rules for some connections only: these bypass the relay, and it goes on with the others.
#[test]
fn only_dropped_connections_bypass_relay() {
    if !may_use_namespaces() {
        return;
    }
    for more in [&[][..], &["--verify-connect"]] {
        let bed = Testbed::new("input-port");
        for port in [8080, 8081] {
            serve(&bed, port);
        }
        let relay = bed.relay(&[&INTERCEPT[..], more].concat());
        let drop = "table inet filter { chain input { type filter hook input priority filter;
            iifname near tcp dport 8081 drop; }
            }";
        nft(&bed, drop);
        for family in &BOTH {
            assert!(is_relayed(&bed, family, 8080), "{}", family.client);
            assert!(!is_relayed(&bed, family, 8081), "{}", family.client);
            assert!(is_relayed(&bed, family, 8080), "{}", family.client);
        }
        let log = stop(relay);
        assert!(!log.contains("not intercepting"), "{log}");
    }
}
