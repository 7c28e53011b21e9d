// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze` says of the captures in `tests/captures`, figure by figure. A figure that
//! changes shows up here; whether it is right is asked in `tap_peers` and in the tests of `longhaul-analysis`.

use serde_json::Value;
use std::process::Command;

/// Histograms, and what is judged from counts, which the tests of `longhaul-analysis` hold against what is true.
const LEFT_OUT: [&str; 4] = ["buckets", "phases", "limits", "verdict"];

/// Flows of a capture, in counts and distributions.
fn flows(files: &[&str]) -> String {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/");
    let output = Command::new(longhaul_testbed::longhaul())
        .args(["tap", "analyze", "--json"])
        .args(files.iter().map(|file| format!("{place}{file}")))
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
fn losses_at_both_ends() {
    insta::assert_snapshot!(flows(&["losses-sender.pcap", "losses-receiver.pcap"]));
}

#[test]
fn reordering_over_ipv6() {
    insta::assert_snapshot!(flows(&["reordered-ipv6.pcap"]));
}

#[test]
fn super_packets_of_a_capture_that_does_not_tell_their_size() {
    insta::assert_snapshot!(flows(&["super-packets.pcap"]));
}
