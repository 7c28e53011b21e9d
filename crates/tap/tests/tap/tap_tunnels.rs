// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of captures whose packets were put into tunnels and into headers of other links by another program
//! (`tests/captures/write-tunnels`). Their flows equal those of the original packets.

use serde_json::Value;
use std::process::Command;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");

/// Tunnels that carry the packets of `a-byte-retransmitted.pcap`.
const TUNNELS: [&str; 36] = [
    "cisco-hdlc",
    "enc",
    "erf",
    "erspan-2",
    "geneve",
    "geneve-ip",
    "gre",
    "gre-ethernet-vlan",
    "gre-fragments",
    "gre-key-sum-sequence",
    "gre-mpls",
    "gre-udp",
    "gtp",
    "gtp-extension",
    "ip-in-ip",
    "ip-in-ip-authenticated",
    "ip-in-ipv6",
    "l2tp",
    "nested",
    "nflog",
    "pflog",
    "pktap",
    "ppi-wifi",
    "ppp",
    "ppp-direction",
    "ppp-hdlc",
    "pseudowire",
    "pseudowire-control-word",
    "radiotap-qos",
    "vxlan",
    "vxlan-gpe",
    "vxlan-linux",
    "wccp",
    "wccp-redirect",
    "wifi",
    "wifi-four-addresses",
];

/// Tunnels that carry the packets of `reordered-ipv6.pcap`.
const TUNNELS_OF_IPV6: [&str; 7] = [
    "gre-udp-ipv6",
    "gtp-ipv6",
    "ip-in-ip-ipv6",
    "ip-in-ipv6-ipv6",
    "nflog-ipv6",
    "pflog-ipv6",
    "ppp-ipv6",
];

fn analyze(name: &str) -> Value {
    analyze_with(name, &[])
}

fn analyze_with(name: &str, flags: &[&str]) -> Value {
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "analyze", "--json"])
        .arg(format!("{CAPTURES}/{name}.pcap"))
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the flows without their numbers, which also count other packets.
fn flows(analysis: &Value) -> Vec<Value> {
    let mut flows = analysis["flows"].as_array().unwrap().clone();
    flows.iter_mut().for_each(|flow| flow["number"] = 0.into());
    flows
}

fn assert_same_flows(plain: &str, tunnels: &[&str]) {
    let plain = flows(&analyze(plain));
    assert!(!plain.is_empty());
    for name in tunnels {
        let found = flows(&analyze(&format!("tunnels/{name}")));
        assert!(found == plain, "{name}: {found:#?}");
    }
}

#[test]
fn finds_flows_in_tunnels_and_on_other_links() {
    assert_same_flows("a-byte-retransmitted", &TUNNELS);
    assert_same_flows("reordered-ipv6", &TUNNELS_OF_IPV6);
}

#[test]
fn reads_tunnels_at_ports_of_flags() {
    let plain = flows(&analyze("a-byte-retransmitted"));
    let name = "tunnels/vxlan-5555";
    assert_eq!(analyze(name)["udp_flows"][0]["upload"]["packets"], 39);
    let flags = [
        "--decode-as",
        "udp.port==1,gtp",
        "--decode-as",
        "udp.port==5555,vxlan",
    ];
    assert_eq!(flows(&analyze_with(name, &flags)), plain);
    let flags = [&flags[..], &["--decode-as", "udp.port==5555,gtp"]].concat();
    assert_eq!(
        analyze_with(name, &flags)["files"][0]["skipped"]["not IP"],
        39
    );
}

#[test]
fn counts_packets_that_are_not_analysed() {
    let skipped = |name: &str| analyze(name)["files"][0]["skipped"].take();
    let encrypted = skipped("tunnels/wifi-encrypted");
    assert_eq!(encrypted["encrypted 802.11 data"], 39);
    let fragments = skipped("tunnels/gre-fragments");
    assert!(fragments["later fragments of IP packets"].as_u64() > Some(0));
    assert!(skipped("tunnels/vxlan").is_null());
}
