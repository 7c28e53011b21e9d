// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client hears when the way to its destination is closed: through relays that keep its address, the same as
//! without.

use longhaul_linux::netns::Netns;
use longhaul_testnet::relay_process::may_use_namespaces;
use longhaul_testnet::relay_testbed::{chain::Chain, feed, set};
use rustix::io::Errno;
use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

/// What a router may say, in nft's words, and the port that it says it of.
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

/// Closes the way to the server's [`PORTS`]: one in each manner, and the last one by a reset.
fn close(router: &Netns) {
    for (family, words) in [("ip", IPV4), ("ip6", IPV6)] {
        let rules = PORTS.zip(
            words
                .into_iter()
                .map(str::to_owned)
                .chain(["tcp reset".into()]),
        );
        let rules = rules.map(|(port, word)| format!("tcp dport {port} reject with {word}\n"));
        let hook = "type filter hook prerouting priority 0";
        let rules = rules.collect::<String>();
        let table = format!("table {family} closed {{ chain c {{\n{hook}\n{rules}\n}}\n}}\n");
        feed(router, "nft", &["-f", "-"], &table);
    }
}

/// Long before a connect gives up. On a link without delay ICMP comes while the socket still sends, and counts only when
/// the SYN is sent again, after a second.
const SOON: Duration = Duration::from_secs(3);

/// The errno that each port gives, and whether it came soon.
fn errnos(chain: &Chain, ipv4: bool) -> Vec<(Option<Errno>, bool)> {
    let connect = |port| {
        let began = Instant::now();
        let to = Chain::server_address(ipv4, port);
        let errno = chain.client().run(|| TcpStream::connect(to)).unwrap_err();
        (Errno::from_io_error(&errno), began.elapsed() < SOON)
    };
    PORTS.map(connect).collect()
}

#[test]
fn verified_connects_fail_as_they_do_without_relays() {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new("icmp", 1500, 1500);
    let [_, router, _] = chain.beyond();
    close(router);
    for netns in chain.relays().into_iter().chain([router]) {
        // Six in a row to one host are as many as the kernel sends at once.
        set(netns, "net.ipv4.icmp_ratelimit", "0");
        set(netns, "net.ipv6.icmp.ratelimit", "0");
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
