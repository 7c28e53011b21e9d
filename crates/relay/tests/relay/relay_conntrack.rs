// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--keep-source` on a router that tracks connections: both legs have the same addresses and
//! ports, and NAT and stateful rules must see only the upstream leg.

use longhaul_testnet::{
    relay_process::{Relay, accept, may_use_namespaces, transfer_both_ways},
    relay_testbed::{Addresses, BOTH, INTERCEPT, Testbed, run_with_input},
};
use std::{net::IpAddr, time::Duration};

const MASQUERADE: &str = "table inet nat {
    chain out {
        type nat hook postrouting priority srcnat
        oifname far masquerade
    }
}
";

/// Stateful firewall that drops and counts invalid and unknown packets.
const STATEFUL: &str = "table inet stateful {
    chain in {
        type filter hook input priority filter
        policy drop
        ct state invalid counter drop
        ct state established,related accept
        iifname lo accept
        meta l4proto ipv6-icmp accept
        tcp dport 8080-8089 accept
    }
    chain across {
        type filter hook forward priority filter
        ct state invalid counter drop
    }
    chain out {
        type filter hook output priority filter
        ct state invalid counter drop
    }
}
";

fn load(bed: &Testbed, rules: &str) {
    run_with_input(&bed.router, "nft", &["-f", "-"], rules);
}

/// Connects three times, transfers bytes both ways and closes. Returns the client addresses that
/// the server sees.
fn exchange_three_times(bed: &Testbed, family: &Addresses) -> [IpAddr; 3] {
    let listener = bed.listen(family.server_port(8080));
    [(); 3].map(|()| {
        let client = bed.connect(family.server_port(8080)).unwrap();
        let server = accept(&listener);
        let source = server.peer_addr().unwrap().ip();
        transfer_both_ways(&client, &server, 8);
        source
    })
}

fn invalid_packet_counters(bed: &Testbed) -> Vec<String> {
    let output = bed
        .command_on_router("nft")
        .args(["list", "ruleset"])
        .output()
        .unwrap();
    let rules = String::from_utf8(output.stdout).unwrap();
    let invalid = rules
        .lines()
        .filter(|line| line.contains("ct state invalid"));
    let dropped = invalid.filter(|line| !line.contains("packets 0 "));
    dropped.map(str::to_owned).collect()
}

/// Flags: without and with --verify-connect.
const FLAGS: [&[&str]; 2] = [&[], &["--verify-connect"]];

fn relay(bed: &Testbed, more: &[&str]) -> Relay {
    bed.relay(&[&INTERCEPT[..], &["--keep-source"], more].concat())
}

#[test]
fn masqueraded_upstream_leg_has_router_address() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("masquerade");
    load(&bed, MASQUERADE);
    for flags in FLAGS {
        let relay = relay(&bed, flags);
        for family in BOTH {
            assert_eq!(
                exchange_three_times(&bed, &family),
                [family.upstream; 3],
                "{flags:?}"
            );
        }
        let (_, log) = relay.stop();
        assert!(!log.contains("not intercepting"), "{log}");
    }
}

#[test]
fn stateful_firewall_sees_no_invalid_packets() {
    if !may_use_namespaces() {
        return;
    }
    for rules in [STATEFUL.to_owned(), STATEFUL.to_owned() + MASQUERADE] {
        let bed = Testbed::new("stateful");
        load(&bed, &rules);
        let masquerades = rules.len() > STATEFUL.len();
        for flags in FLAGS {
            let _relay = relay(&bed, flags);
            for family in BOTH {
                let wanted = if masquerades {
                    family.upstream
                } else {
                    family.client
                };
                assert_eq!(
                    exchange_three_times(&bed, &family),
                    [wanted; 3],
                    "{flags:?}"
                );
                assert_eq!(
                    invalid_packet_counters(&bed),
                    [""; 0],
                    "{flags:?} {family:?}"
                );
            }
        }
    }
}

#[test]
fn detects_tracking_enabled_later() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("later");
    for flags in FLAGS {
        let _relay = relay(&bed, flags);
        for family in BOTH {
            assert_eq!(exchange_three_times(&bed, &family), [family.client; 3]);
        }
        load(&bed, MASQUERADE);
        // The relay detects tracking at the first tracked connection.
        let known = || {
            let rules = bed
                .command_on_router("nft")
                .args(["list", "ruleset"])
                .output()
                .unwrap();
            String::from_utf8(rules.stdout)
                .unwrap()
                .contains("ct zone set")
        };
        let listener = bed.listen(BOTH[0].server_port(8085));
        let _first = bed.connect(BOTH[0].server_port(8085));
        while !known() {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(listener);
        for family in BOTH {
            assert_eq!(
                exchange_three_times(&bed, &family),
                [family.upstream; 3],
                "{flags:?}"
            );
        }
        run_with_input(&bed.router, "nft", &["-f", "-"], "delete table inet nat\n");
    }
}

#[test]
fn does_not_affect_relay_without_keep_source() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("beside");
    load(&bed, STATEFUL);
    let other = [
        "--transparent",
        "127.0.0.1:3131",
        "--transparent",
        "[::1]:3131",
        "--intercept",
        "10.77.2.0/24,[fd77:2::/64]:8080",
    ];
    let _other = bed.relay(&other);
    let own = [
        "--transparent",
        "127.0.0.1:3129",
        "--transparent",
        "[::1]:3129",
        "--intercept",
        "10.77.2.0/24,[fd77:2::/64]:8081",
        "--keep-source",
    ];
    for flags in FLAGS {
        let _relay = bed.relay(&[&own[..], flags].concat());
        for family in BOTH {
            assert_eq!(
                exchange_three_times(&bed, &family),
                [family.upstream; 3],
                "{flags:?}"
            );
            assert_eq!(
                invalid_packet_counters(&bed),
                [""; 0],
                "{flags:?} {family:?}"
            );
        }
    }
}
