// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a client whose path to the destination is blocked: through relays that keep its
//! address, they are the same as without relays.

use longhaul_linux::netns::Netns;
use longhaul_testnet::relay_process::may_use_namespaces;
use longhaul_testnet::relay_testbed::{chain::Chain, run_with_input, set_sysctl};
use rustix::io::Errno;
use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

/// Router rejections in nft's words, one for each port.
const IPV4: [&str; 6] = [
    "icmp type net-unreachable",
    "icmp type host-unreachable",
    "icmp type port-unreachable",
    "icmp type net-prohibited",
    "icmp type host-prohibited",
    "icmp type admin-prohibited",
];
const IPV6: [&str; 6] = [
    "icmpv6 type no-route",
    "icmpv6 type addr-unreachable",
    "icmpv6 type port-unreachable",
    "icmpv6 type admin-prohibited",
    "icmpv6 type policy-fail",
    "icmpv6 type reject-route",
];
const PORTS: std::ops::Range<u16> = 9000..9007;

/// Blocks the server's [`PORTS`]: each with another rejection, the last with a reset.
fn block(router: &Netns) {
    for (family, rejections) in [("ip", IPV4), ("ip6", IPV6)] {
        let rules = PORTS.zip(
            rejections
                .into_iter()
                .map(str::to_owned)
                .chain(["tcp reset".into()]),
        );
        let rules =
            rules.map(|(port, rejection)| format!("tcp dport {port} reject with {rejection}\n"));
        let hook = "type filter hook prerouting priority 0";
        let rules = rules.collect::<String>();
        let table = format!("table {family} closed {{ chain c {{\n{hook}\n{rules}\n}}\n}}\n");
        run_with_input(router, "nft", &["-f", "-"], &table);
    }
}

/// Shorter than the time-out of a connection attempt. On a link without delay, ICMP arrives while
/// the socket still sends, and only counts when the SYN is retransmitted after a second.
const SOON: Duration = Duration::from_secs(3);

/// Errno of each port, and whether it came soon.
fn errnos(chain: &Chain, ipv4: bool) -> Vec<(Option<Errno>, bool)> {
    let connect = |port| {
        let start = Instant::now();
        let to = Chain::server_address(ipv4, port);
        let errno = chain.client().run(|| TcpStream::connect(to)).unwrap_err();
        (Errno::from_io_error(&errno), start.elapsed() < SOON)
    };
    PORTS.map(connect).collect()
}

#[test]
fn verified_connects_fail_as_without_relays() {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new("icmp", 1500, 1500);
    let [_, router, _] = chain.routers_and_server();
    block(router);
    for netns in chain.relays().into_iter().chain([router]) {
        // The kernel's rate limit would suppress some of the six errors to one host.
        set_sysctl(netns, "net.ipv4.icmp_ratelimit", "0");
        set_sysctl(netns, "net.ipv6.icmp.ratelimit", "0");
    }
    let direct = [true, false].map(|ipv4| errnos(&chain, ipv4));
    assert!(
        direct[1].contains(&(Some(Errno::ACCESS), true)),
        "{direct:?}"
    );
    for hosts in [&chain.relays()[..1], &chain.relays()[..]] {
        for more in [
            &["--verify-connect", "--keep-source"][..],
            &["--verify-connect"],
        ] {
            let _relays: Vec<_> = hosts.iter().map(|host| Chain::relay(host, more)).collect();
            for (ipv4, direct) in [true, false].into_iter().zip(&direct) {
                assert_eq!(&errnos(&chain, ipv4), direct, "{more:?}");
            }
        }
    }
}
