// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures whose packets another program has put into tunnels and into headers of other links
//! (`tests/captures/write-tunnels`): their flows are those of the packets without.

use serde_json::Value;
use std::process::Command;

const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");

/// Tunnels of `a-byte-sent-again.pcap`.
const TUNNELS: [&str; 23] = [
    "cisco-hdlc",
    "erspan-2",
    "geneve",
    "geneve-ip",
    "gre",
    "gre-ethernet-vlan",
    "gre-fragments",
    "gre-key-sum-sequence",
    "gre-mpls",
    "gre-udp",
    "ip-in-ip",
    "ip-in-ip-authenticated",
    "ip-in-ipv6",
    "nested",
    "ppi-wifi",
    "ppp",
    "ppp-direction",
    "ppp-hdlc",
    "radiotap-qos",
    "vxlan",
    "vxlan-gpe",
    "wifi",
    "wifi-four-addresses",
];

/// Of `reordered-ipv6.pcap`.
const TUNNELS_OF_IPV6: [&str; 4] = [
    "gre-udp-ipv6",
    "ip-in-ip-ipv6",
    "ip-in-ipv6-ipv6",
    "ppp-ipv6",
];

fn analyze(name: &str) -> Value {
    let output = Command::new(longhaul_testbed::longhaul())
        .args(["tap", "analyze", "--json"])
        .arg(format!("{PLACE}/{name}.pcap"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All that is said of flows, but their numbers, which count other packets too.
fn flows(analysis: &Value) -> Vec<Value> {
    let mut flows = analysis["flows"].as_array().unwrap().clone();
    flows.iter_mut().for_each(|flow| flow["number"] = 0.into());
    flows
}

fn are_flows_of(plain: &str, tunnels: &[&str]) {
    let plain = flows(&analyze(plain));
    assert!(!plain.is_empty());
    for name in tunnels {
        let found = flows(&analyze(&format!("tunnels/{name}")));
        assert!(found == plain, "{name}: {found:#?}");
    }
}

#[test]
fn flows_in_tunnels_and_on_other_links() {
    are_flows_of("a-byte-sent-again", &TUNNELS);
    are_flows_of("reordered-ipv6", &TUNNELS_OF_IPV6);
}

#[test]
fn what_is_left_out_is_counted() {
    let left_out = |name: &str| analyze(name)["files"][0]["left_out"].take();
    let encrypted = left_out("tunnels/wifi-encrypted");
    assert_eq!(encrypted["not read: encrypted 802.11 data"], 39);
    let fragments = left_out("tunnels/gre-fragments");
    assert!(fragments["later fragments of IP packets"].as_u64() > Some(0));
    assert!(left_out("tunnels/vxlan").is_null());
}
