// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden results of `longhaul tap analyze` for the captures in `tests/captures`, figure by figure. They show any
//! change of a figure. `tap_peers` and the tests of `longhaul-flow` check that the figures are right.

use serde_json::Value;
use std::process::Command;

/// Keys left out: histograms, and judgements from counts, which the tests of `longhaul-flow` compare with the truth.
const LEFT_OUT: [&str; 4] = ["buckets", "phases", "limits", "verdict"];

/// Returns the flows of a capture with their counts and distributions.
fn flows(files: &[&str]) -> String {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/");
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "analyze", "--json"])
        .args(files.iter().map(|file| format!("{directory}{file}")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut flows = analysis["flows"].take();
    shorten(&mut flows);
    serde_json::to_string_pretty(&flows).unwrap()
}

fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            LEFT_OUT.iter().for_each(|name| drop(fields.remove(*name)));
            fields.values_mut().for_each(shorten);
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        _ => {}
    }
}

#[test]
fn golden_losses_at_both_ends() {
    insta::assert_snapshot!(flows(&["losses-sender.pcap", "losses-receiver.pcap"]));
}

#[test]
fn golden_reordering_over_ipv6() {
    insta::assert_snapshot!(flows(&["reordered-ipv6.pcap"]));
}

#[test]
fn golden_super_packets_of_unknown_segment_size() {
    insta::assert_snapshot!(flows(&["super-packets.pcap"]));
}
