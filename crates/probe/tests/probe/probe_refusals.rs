// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input of `longhaul probe`: one clear line, exit code 2, and nothing sent.

use std::process::Command;

/// Refused with one line that holds all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    let output = Command::new(longhaul_testbed::longhaul())
        .args(["probe", "127.0.0.1"])
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn what_can_not_be_sent_is_named() {
    refused(&["--count", "0"], &["count is 0", "1 to 1000000"]);
    refused(&["--count", "1000001"], &["count", "1000001"]);
    refused(&["--length", "20"], &["length is 20", "64 to 9000"]);
    refused(
        &["--count", "10", "--segments", "3"],
        &["10 packets", "messages of 3"],
    );
    refused(
        &["--segments", "64", "--length", "1500", "--count", "64"],
        &["segments"],
    );
    refused(&["--interval", "2h"], &["interval is", "at most"]);
}

#[test]
fn what_can_not_be_expected_is_named() {
    refused(&["--expect", "delay"], &["\"delay\" is not KEY=VALUE"]);
    refused(&["--expect", "latency=1ms"], &["latency", "delay, jitter"]);
    refused(&["--expect", "loss=1.5"], &["loss", "1.5"]);
    refused(&["--expect", "queue=64KB"], &["queue", "delay, jitter"]);
    let twice = ["--expect", "delay=1ms", "--expect", "delay=2ms"];
    refused(&twice, &["delay", "twice"]);
    for alone in ["reorder=1%:5ms", "jitter=2ms,reorder", "jitter=none"] {
        refused(&["--expect", alone], &["expect a delay, too"]);
    }
    refused(&["--expect", "loss=1"], &["loss", "1%", "100%"]);
    refused(&["--expect", "ack-thin=1"], &["ack-thin", "delay, jitter"]);
    refused(&["--expect", "jitter=2ms"], &["jitter", "reorder"]);
    refused(&["--expect", "rate=1gbit"], &["rate", "--interval 0s"]);
    refused(&["--expect", "loss=at:5"], &["loss", "start"]);
}

#[test]
fn a_missing_namespace_is_named_with_what_makes_it() {
    let name = ["--to", "longhaul-no-such-place"];
    refused(&name, &["longhaul-no-such-place", "ip netns add"]);
}
