// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of captures of HTTP/3. Packets, bytes and round trips are those that tshark shows.

use serde_json::Value;
use std::process::Command;

fn analyze(name: &str, flags: &[&str]) -> String {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "analyze"])
        .arg(format!("{directory}/{name}.pcap"))
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn result(name: &str) -> Value {
    serde_json::from_str(&analyze(name, &["--json"])).unwrap()
}

/// `tshark -z conv,udp` counts the same packets, and 14 bytes more in each: Ethernet's header.
#[test]
fn lists_quic_flow_with_packets_and_bytes() {
    let result = result("quic");
    assert!(result["files"][0]["skipped"].is_null());
    let [flow] = &result["udp_flows"].as_array().unwrap()[..] else {
        panic!("one flow");
    };
    assert_eq!(flow["server"]["port"], 4443);
    let counts = |direction: &str| {
        let counts = &flow[direction];
        let count = |name: &str| counts[name].as_u64().unwrap();
        (
            count("packets"),
            count("wire_bytes") + 14 * count("packets"),
        )
    };
    assert_eq!(counts("upload"), (56, 6_911));
    assert_eq!(counts("download"), (178, 215_374));
}

/// tshark shows the client's long headers at 0 and 106.960 ms. The edges of its spin bit (`quic.spin_bit`) are 79.648,
/// 125.5, 135.7 and 337.957 ms apart. The path has 40 ms, and the machine was busy.
#[test]
fn measures_round_trips_as_tshark_shows_them() {
    let quic = &result("quic")["udp_flows"][0]["quic"];
    assert_eq!(quic["handshake_rtt_ns"], 106_960_000);
    assert_eq!(quic["spin_bit"], "spins");
    let rtt = &quic["spin_rtt"];
    assert_eq!(rtt["count"], 4);
    assert_eq!(
        (&rtt["min"], &rtt["max"]),
        (&79_648_000.into(), &337_957_000.into())
    );
}

#[test]
fn reads_version_of_quic() {
    for (name, version) in [("quic", "1"), ("quic-version-2", "2")] {
        assert_eq!(result(name)["udp_flows"][0]["quic"]["version"], version);
    }
}

#[test]
fn terminal_says_that_there_is_no_tcp_and_lists_udp() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let text = analyze("quic", &["-o", out.to_str().unwrap()]);
    assert!(text.contains(", no TCP; 1 UDP flow, QUIC\n"), "{text}");
    let line = text.lines().find(|line| line.contains(" UDP 10.")).unwrap();
    assert!(line.contains("  QUIC 1  up 56 packets, "), "{line}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("1 UDP flow"), "the page has them, too");
}
