// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bad input to `longhaul probe`: an error message, exit code 2, and no packets sent.

use longhaul_testprograms::process;
use std::process::Command;

/// Asserts exit code 2, and that standard error contains all of `words`.
fn assert_refused(args: &[&str], words: &[&str]) {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["probe", "127.0.0.1"]).args(args);
    process::assert_refused(&command.output().unwrap(), 2, words);
}

#[test]
fn rejects_invalid_timing_flags() {
    assert_refused(&["--count", "0"], &["count is 0", "1 to 1000000"]);
    assert_refused(&["--count", "1000001"], &["count", "1000001"]);
    assert_refused(
        &["--packet-size", "20"],
        &["packet size is 20", "64 to 9000"],
    );
    assert_refused(
        &["--count", "10", "--gso-segments", "3"],
        &["10 packets", "messages of 3"],
    );
    assert_refused(
        &["--gso-segments=64", "--packet-size=1500", "--count=64"],
        &["64 packets of 1500 bytes", "65000 at most"],
    );
    assert_refused(&["--interval", "2h"], &["interval is 2h", "60s at most"]);
    assert_refused(&["--wait", "1.5min"], &["wait is 1.5min", "60s at most"]);
}

#[test]
fn rejects_invalid_expectations() {
    assert_refused(&["--expect", "delay"], &["\"delay\" is not KEY=VALUE"]);
    assert_refused(&["--expect", "latency=1ms"], &["latency", "delay, jitter"]);
    assert_refused(&["--expect", "loss=1.5"], &["loss", "1.5"]);
    assert_refused(&["--expect", "queue=64KB"], &["queue", "delay, jitter"]);
    let twice = ["--expect", "delay=1ms", "--expect", "delay=2ms"];
    assert_refused(&twice, &["delay", "twice"]);
    for alone in ["reorder=1%:5ms", "jitter=2ms,reorder", "jitter=none"] {
        assert_refused(&["--expect", alone], &["expect a delay, too"]);
    }
    assert_refused(&["--expect", "loss=1"], &["loss", "1%", "100%"]);
    assert_refused(&["--expect", "ack-thin=1"], &["ack-thin", "delay, jitter"]);
    assert_refused(&["--expect", "jitter=2ms"], &["jitter", "reorder"]);
    assert_refused(&["--expect", "rate=1gbit"], &["rate", "--interval 0s"]);
    assert_refused(&["--expect", "loss=at:5"], &["loss", "start"]);
}

#[test]
fn error_for_missing_namespace_names_the_command_that_creates_it() {
    let name = ["--to", "longhaul-no-such-place"];
    assert_refused(&name, &["longhaul-no-such-place", "ip netns add"]);
}
