// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU of legs with foreign addresses, over a link with a smaller MTU than the networks around
//! it: ICMP errors go to addresses that are not the relay's.

use longhaul_linux::{netns::Netns, sysctl};
use longhaul_testnet::relay_process::{
    TEST_TIMEOUT, accept, may_use_namespaces, set_timeouts, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::chain::Chain;
use rustix::process::Signal;
use std::{net::IpAddr, time::Instant};

/// Transfers bytes in both directions over a new connection. Returns its source address as the
/// server sees it.
fn carry(chain: &Chain, ipv4: bool) -> IpAddr {
    let listener = chain.listen(Chain::server_address(ipv4, 8080));
    let client = chain.connect(listener.local_addr().unwrap()).unwrap();
    let server = accept(&listener);
    let source = server.peer_addr().unwrap().ip();
    set_timeouts(&client);
    transfer_both_ways(&client, &server, 2);
    source
}

/// MTUs of the link and of the networks around it.
const SIZES: [(u32, u32); 3] = [(1400, 1500), (1280, 1500), (1400, 9000)];

#[test]
fn legs_with_kept_source_learn_path_mtu() {
    if !may_use_namespaces() {
        return;
    }
    for (link, edges) in SIZES {
        for more in [
            &["--keep-source"][..],
            &["--keep-source", "--verify-connect"],
        ] {
            let chain = Chain::new("mtu", link, edges);
            let _relays = chain.relays().map(|host| Chain::relay(host, more));
            for ipv4 in [true, false] {
                assert_eq!(carry(&chain, ipv4), Chain::client_address(ipv4));
            }
        }
    }
}

/// The downstream leg has the server's address, whatever address the upstream leg has.
#[test]
fn near_leg_learns_path_mtu() {
    if !may_use_namespaces() {
        return;
    }
    for (link, edges) in SIZES {
        let chain = Chain::new("mtunear", link, edges);
        let _relay = Chain::relay(chain.relays()[1], &[]);
        for ipv4 in [true, false] {
            assert_ne!(carry(&chain, ipv4), Chain::client_address(ipv4));
        }
    }
}

const PROBING: &str = "net.ipv4.tcp_mtu_probing";

fn probing(netns: &Netns) -> String {
    sysctl::read(netns, PROBING).unwrap()
}

#[test]
fn mtu_probing_works_without_icmp() {
    if !may_use_namespaces() {
        return;
    }
    for (link, edges) in SIZES {
        let chain = Chain::new("mtusilent", link, edges);
        chain.drop_icmp_errors();
        let probe = ["--keep-source", "--mtu-probing"];
        let _relays = chain.relays().map(|host| Chain::relay(host, &probe));
        for ipv4 in [true, false] {
            assert_eq!(carry(&chain, ipv4), Chain::client_address(ipv4));
        }
    }
}

#[test]
fn restores_mtu_probing_setting_after_last_relay() {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new("mtuset", 1500, 1500);
    let [host, other] = chain.relays();
    let start = |port: &str| {
        let mut command = std::process::Command::new(longhaul_testprograms::longhaul());
        command.args(["relay", "--mtu-probing", "--socks5", port]);
        longhaul_linux::process::inside(&mut command, host);
        longhaul_testnet::relay_process::Relay::spawn(command)
    };
    let [first, second] = ["127.0.0.1:1080", "127.0.0.1:1081"].map(start);
    assert_eq!([probing(host), probing(other)], ["1", "0"]);
    first.stop();
    assert_eq!(probing(host), "1");
    second.signal(Signal::KILL);
    second.wait();
    let killed = Instant::now();
    while probing(host) != "0" {
        assert!(
            killed.elapsed() < TEST_TIMEOUT,
            "the setting was not restored"
        );
        std::thread::yield_now();
    }
    sysctl::write(host, PROBING, "2").unwrap();
    start("127.0.0.1:1080").stop();
    assert_eq!(probing(host), "2");
}
