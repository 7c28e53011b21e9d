// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul probe` across a running `longhaul link`. Bounds on delays are one-sided: a busy machine makes
//! packets late, never early.

use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
use serde_json::Value;
use std::process::Command;

const IPV4: [&str; 2] = ["10.66.8.1/30", "10.66.8.2/30"];

/// Probes from left to right. Returns the result as JSON.
fn probe(bed: &Testbed, flags: &[&str]) -> Value {
    let (code, stderr, result) = probe_with_output(bed, flags);
    let code_on_deviation = flags.contains(&"--expect").then_some(1);
    assert!(code == Some(0) || code == code_on_deviation, "{stderr}");
    result
}

/// Probes from left to right. Returns the exit code, standard error, and the result as JSON.
fn probe_with_output(bed: &Testbed, flags: &[&str]) -> (Option<i32>, String, Value) {
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["probe", "--json", "--wait", "500ms"])
        .args(["--from", bed.left.name()])
        .args(["--to", bed.right.name()])
        .args(flags)
        .arg(bed.right_address().to_string())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout);
    let result = result.unwrap_or_else(|_| panic!("{stderr}"));
    (output.status.code(), stderr, result)
}

#[test]
fn exits_with_1_on_deviation() {
    if !may_use_namespaces() {
        return;
    }
    let flags = [
        "--delay",
        "13ms",
        "--rate",
        "100mbit",
        "--duplicate",
        "10%",
        "--corrupt",
        "10%",
    ];
    let bed = Testbed::start("probe-tested", IPV4, &flags);
    let burst: &[&str] = &[
        "--interval",
        "0s",
        "--count",
        "200",
        "--packet-size",
        "1500",
    ];
    // Jitter and reordering can be tested only together with the delay.
    let correct_delay = &["--expect", "delay=13ms"];
    for (expected, extra_flags) in [
        ("delay=20ms", [].as_slice()),
        ("delay=1ms", &[]),
        ("rate=200mbit", burst),
        ("rate=20mbit", burst),
        ("loss=none", &[]),
        ("loss=40%", &[]),
        ("loss=gilbert:p=1%,r=90%", &[]),
        ("duplicate=none", &[]),
        ("corrupt=50%", &[]),
        ("jitter=40ms,reorder", correct_delay),
        // On a busy machine a part of the packets is late by as much.
        ("reorder=90%:5ms", correct_delay),
    ] {
        let flags = [&["--expect", expected], extra_flags].concat();
        let (code, stderr, result) = probe_with_output(&bed, &flags);
        assert_eq!(code, Some(1), "{expected}: {stderr} {result}");
        let key = match expected.split('=').next().unwrap() {
            // Jitter is tested with the delay.
            "jitter" => "delay",
            key => key,
        };
        assert!(
            stderr.contains(&format!("not as expected: {key}: ")),
            "{stderr}"
        );
        assert_eq!(result["as_expected"], false, "{result}");
    }
    let (code, stderr, _) = probe_with_output(&bed, &["--expect", "duplicate=10%"]);
    assert!(
        code == Some(1) && stderr.contains("loss: "),
        "not named: {stderr}"
    );
    for expected in ["corrupt=10%", "loss=10%"] {
        let flags = ["--expect", expected, "--expect", "duplicate=10%"];
        let (code, stderr, result) = probe_with_output(&bed, &flags);
        assert_eq!(
            (code, &result["as_expected"]),
            (Some(0), &true.into()),
            "{stderr}"
        );
    }
}

fn figure_value(result: &Value, figure: &str) -> f64 {
    let value = result[figure].as_f64();
    value.unwrap_or_else(|| panic!("no {figure} in {result}"))
}

#[test]
fn counts_losses_and_reports_no_early_packet() {
    if !may_use_namespaces() {
        return;
    }
    for addresses in [IPV4, ["fd66:8::1/64", "fd66:8::2/64"]] {
        let link = ["--forward", "loss=at:2,5-7", "--delay", "30ms"];
        let bed = Testbed::start("probe-count", addresses, &link);
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("records.jsonl");
        let keep = ["--records", records.to_str().unwrap()];
        let flags = [["--count", "10"], ["--expect", "delay=30ms"], keep].concat();
        let result = probe(&bed, &flags);
        for (figure, expected) in [("sent", 10.0), ("received", 6.0), ("lost", 4.0)] {
            assert_eq!(figure_value(&result, figure), expected, "{figure}");
        }
        assert_eq!(figure_value(&result, "first_lost"), 2.0);
        assert_eq!(figure_value(&result, "delay_early_us"), 0.0);
        assert!(figure_value(&result, "delay_min_us") >= 30_000.0);

        let text = std::fs::read_to_string(&records).unwrap();
        let lost = text
            .lines()
            .filter(|line| line.contains("\"received_ns\":null"));
        assert_eq!((text.lines().count(), lost.count()), (12, 4));
    }
}

#[test]
fn distinguishes_duplicates_from_reordering() {
    if !may_use_namespaces() {
        return;
    }
    let duplicating = Testbed::start("probe-twice", IPV4, &["--forward", "duplicate=100%"]);
    let result = probe(&duplicating, &["--count", "50"]);
    assert_eq!(figure_value(&result, "duplicated"), 50.0);
    assert_eq!(
        (
            figure_value(&result, "reordered"),
            figure_value(&result, "lost")
        ),
        (0.0, 0.0)
    );
    drop(duplicating);
    // The link delays half of the packets by a hundred intervals.
    let reordering = Testbed::start("probe-held", IPV4, &["--forward", "reorder=50%:200ms"]);
    let result = probe(&reordering, &["--count", "50", "--interval", "2ms"]);
    assert!(figure_value(&result, "reordered") > 5.0, "{result}");
    assert_eq!(
        (
            figure_value(&result, "duplicated"),
            figure_value(&result, "lost")
        ),
        (0.0, 0.0)
    );
}

#[test]
fn super_packets_and_single_packets_have_the_same_losses() {
    if !may_use_namespaces() {
        return;
    }
    let lossy = ["--loss", "10%", "--seed", "3"];
    let bed = Testbed::start("probe-super", IPV4, &lossy);
    let one = ["--count", "960", "--interval", "0s", "--packet-size", "500"];
    let with_gso = probe(&bed, &[one.as_slice(), &["--gso-segments", "32"]].concat());
    drop(bed);
    let single = Testbed::start(
        "probe-single",
        IPV4,
        &[&lossy, ["--no-offload"].as_slice()].concat(),
    );
    let without_gso = probe(&single, &one);
    assert!(figure_value(&with_gso, "lost") > 50.0);
    assert_eq!(with_gso["loss_pattern"], without_gso["loss_pattern"]);
    assert_eq!(with_gso["lost"], without_gso["lost"]);
}

#[test]
fn detects_more_loss_than_declared() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("probe-wrong", IPV4, &["--loss", "10%", "--seed", "3"]);
    let flags = ["--count", "2000", "--interval", "100us"];
    let result = probe(&bed, &[flags.as_slice(), &["--expect", "loss=5%"]].concat());
    assert!(figure_value(&result, "losses_p") < 1e-6, "{result}");
    assert!(figure_value(&result, "gaps_p") < 1e-3, "{result}");
    drop(bed);
    let bed = Testbed::start("probe-right", IPV4, &["--loss", "10%", "--seed", "3"]);
    let result = probe(
        &bed,
        &[flags.as_slice(), &["--expect", "loss=10%"]].concat(),
    );
    assert!(figure_value(&result, "losses_p") > 1e-3, "{result}");
    assert!(figure_value(&result, "gaps_p") > 1e-3, "{result}");
}
