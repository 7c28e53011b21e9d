// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--keep-source` on a router that tracks connections: both legs of one have the same addresses and ports, and NAT and
//! stateful rules must know the far one alone.

use longhaul_testnet::{
    relay_process::{Relay, accept, exchange, may_use_namespaces},
    relay_testbed::{BOTH, Family, INTERCEPT, Testbed, feed},
};
use std::{net::IpAddr, time::Duration};

const MASQUERADE: &str = "table inet nat {
    chain out {
        type nat hook postrouting priority srcnat
        oifname far masquerade
    }
}
";

/// What a careful administrator has: what is not known is not let through, and counted.
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
    feed(&bed.router, "nft", &["-f", "-"], rules);
}

/// Connects three times, moves bytes both ways and closes; returns where the server saw the connections come from.
fn use_three(bed: &Testbed, family: &Family) -> [IpAddr; 3] {
    let listener = bed.listen(family.at(8080));
    [(); 3].map(|()| {
        let client = bed.connect(family.at(8080)).unwrap();
        let server = accept(&listener);
        let source = server.peer_addr().unwrap().ip();
        exchange(&client, &server, 8);
        source
    })
}

fn counted_invalid(bed: &Testbed) -> Vec<String> {
    let output = bed
        .within("nft")
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

/// Without --verify-connect, and with it.
const WAYS: [&[&str]; 2] = [&[], &["--verify-connect"]];

fn relay(bed: &Testbed, more: &[&str]) -> Relay {
    bed.relay(&[&INTERCEPT[..], &["--keep-source"], more].concat())
}

#[test]
fn a_masqueraded_far_leg_has_the_router_s_address() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("masquerade");
    load(&bed, MASQUERADE);
    for way in WAYS {
        let relay = relay(&bed, way);
        for family in BOTH {
            assert_eq!(use_three(&bed, &family), [family.far; 3], "{way:?}");
        }
        let (_, said) = relay.stop();
        assert!(!said.contains("not intercepting"), "{said}");
    }
}

#[test]
fn a_stateful_firewall_finds_no_packet_invalid() {
    if !may_use_namespaces() {
        return;
    }
    for rules in [STATEFUL.to_owned(), STATEFUL.to_owned() + MASQUERADE] {
        let bed = Testbed::new("stateful");
        load(&bed, &rules);
        let masquerades = rules.len() > STATEFUL.len();
        for way in WAYS {
            let _relay = relay(&bed, way);
            for family in BOTH {
                let wanted = if masquerades {
                    family.far
                } else {
                    family.client
                };
                assert_eq!(use_three(&bed, &family), [wanted; 3], "{way:?}");
                assert_eq!(counted_invalid(&bed), [""; 0], "{way:?} {family:?}");
            }
        }
    }
}

#[test]
fn tracking_that_comes_later_is_noticed() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("later");
    for way in WAYS {
        let _relay = relay(&bed, way);
        for family in BOTH {
            assert_eq!(use_three(&bed, &family), [family.client; 3]);
        }
        load(&bed, MASQUERADE);
        // The first that is tracked makes it known.
        let known = || {
            let rules = bed
                .within("nft")
                .args(["list", "ruleset"])
                .output()
                .unwrap();
            String::from_utf8(rules.stdout)
                .unwrap()
                .contains("ct zone set")
        };
        let listener = bed.listen(BOTH[0].at(8085));
        let _first = bed.connect(BOTH[0].at(8085));
        while !known() {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(listener);
        for family in BOTH {
            assert_eq!(use_three(&bed, &family), [family.far; 3], "{way:?}");
        }
        feed(&bed.router, "nft", &["-f", "-"], "delete table inet nat\n");
    }
}

#[test]
fn a_relay_beside_it_that_keeps_no_source_is_left_alone() {
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
    for way in WAYS {
        let _relay = bed.relay(&[&own[..], way].concat());
        for family in BOTH {
            assert_eq!(use_three(&bed, &family), [family.far; 3], "{way:?}");
            assert_eq!(counted_invalid(&bed), [""; 0], "{way:?} {family:?}");
        }
    }
}
