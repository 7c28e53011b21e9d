// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul probe` across a running `longhaul link`. What is asserted of delays is one-sided: a busy
//! machine makes packets late, never early.

use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
use serde_json::Value;
use std::process::Command;

const IPV4: [&str; 2] = ["10.66.8.1/30", "10.66.8.2/30"];

/// Probes from left to right; the result as JSON.
fn probe(bed: &Testbed, flags: &[&str]) -> Value {
    let (code, said, result) = judged(bed, flags);
    let faults = flags.contains(&"--expect").then_some(1);
    assert!(code == Some(0) || code == faults, "{said}");
    result
}

/// With the exit code and what was said.
fn judged(bed: &Testbed, flags: &[&str]) -> (Option<i32>, String, Value) {
    let output = Command::new(longhaul_testbed::longhaul())
        .args(["probe", "--json", "--wait", "500ms"])
        .args(["--from", bed.left.name().unwrap()])
        .args(["--to", bed.right.name().unwrap()])
        .args(flags)
        .arg(bed.right_address().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout);
    let result = result.unwrap_or_else(|_| panic!("{said}"));
    (output.status.code(), said, result)
}

#[test]
fn a_path_that_is_not_as_expected_ends_with_1() {
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
    let bed = Testbed::start("probe-judged", IPV4, &flags);
    let burst: &[&str] = &["--interval", "0s", "--count", "200", "--length", "1500"];
    // Jitter and reordering show in delays only.
    let as_it_is = &["--expect", "delay=13ms"];
    for (expected, more) in [
        ("delay=20ms", [].as_slice()),
        ("delay=1ms", &[]),
        ("rate=200mbit", burst),
        ("rate=20mbit", burst),
        ("loss=none", &[]),
        ("loss=40%", &[]),
        ("loss=gilbert:p=1%,r=90%", &[]),
        ("duplicate=none", &[]),
        ("corrupt=50%", &[]),
        ("jitter=40ms,reorder", as_it_is),
        ("reorder=20%:5ms", as_it_is),
    ] {
        let flags = [&["--expect", expected], more].concat();
        let (code, said, result) = judged(&bed, &flags);
        assert_eq!(code, Some(1), "{expected}: {said} {result}");
        let key = match expected.split('=').next().unwrap() {
            // Jitter is part of the delay that is judged.
            "jitter" => "delay",
            key => key,
        };
        assert!(
            said.contains(&format!("not as expected: {key}: ")),
            "{said}"
        );
        assert_eq!(result["as_expected"], false, "{result}");
    }
    for expected in ["duplicate=10%", "corrupt=10%", "loss=10%"] {
        let (code, said, result) = judged(&bed, &["--expect", expected]);
        assert_eq!(
            (code, &result["as_expected"]),
            (Some(0), &true.into()),
            "{said}"
        );
    }
}

fn number(result: &Value, figure: &str) -> f64 {
    let value = result[figure].as_f64();
    value.unwrap_or_else(|| panic!("no {figure} in {result}"))
}

#[test]
fn counts_what_is_lost_and_sees_nothing_early() {
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
        for (figure, wanted) in [("sent", 10.0), ("received", 6.0), ("lost", 4.0)] {
            assert_eq!(number(&result, figure), wanted, "{figure}");
        }
        assert_eq!(number(&result, "first_lost"), 2.0);
        assert_eq!(number(&result, "delay_early_us"), 0.0);
        assert!(number(&result, "delay_min_us") >= 30_000.0);

        let text = std::fs::read_to_string(&records).unwrap();
        let lost = text
            .lines()
            .filter(|line| line.contains("\"received_ns\":null"));
        assert_eq!((text.lines().count(), lost.count()), (12, 4));
    }
}

#[test]
fn duplicates_and_overtaking_are_told_apart() {
    if !may_use_namespaces() {
        return;
    }
    let twice = Testbed::start("probe-twice", IPV4, &["--forward", "duplicate=100%"]);
    let result = probe(&twice, &["--count", "50"]);
    assert_eq!(number(&result, "duplicated"), 50.0);
    assert_eq!(
        (number(&result, "reordered"), number(&result, "lost")),
        (0.0, 0.0)
    );
    drop(twice);
    // Half of the packets are held back for a hundred intervals.
    let held = Testbed::start("probe-held", IPV4, &["--forward", "reorder=50%:200ms"]);
    let result = probe(&held, &["--count", "50", "--interval", "2ms"]);
    assert!(number(&result, "reordered") > 5.0, "{result}");
    assert_eq!(
        (number(&result, "duplicated"), number(&result, "lost")),
        (0.0, 0.0)
    );
}

#[test]
fn the_same_packets_are_lost_as_super_packets_and_one_by_one() {
    if !may_use_namespaces() {
        return;
    }
    let lossy = ["--loss", "10%", "--seed", "3"];
    let bed = Testbed::start("probe-super", IPV4, &lossy);
    let one = ["--count", "960", "--interval", "0s", "--length", "500"];
    let together = probe(&bed, &[one.as_slice(), &["--segments", "32"]].concat());
    drop(bed);
    let single = Testbed::start(
        "probe-single",
        IPV4,
        &[&lossy, ["--no-offload"].as_slice()].concat(),
    );
    let alone = probe(&single, &one);
    assert!(number(&together, "lost") > 50.0);
    assert_eq!(together["loss_pattern"], alone["loss_pattern"]);
    assert_eq!(together["lost"], alone["lost"]);
}

#[test]
fn a_link_that_loses_more_than_declared_is_caught() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::start("probe-wrong", IPV4, &["--loss", "10%", "--seed", "3"]);
    let flags = ["--count", "2000", "--interval", "100us"];
    let result = probe(&bed, &[flags.as_slice(), &["--expect", "loss=5%"]].concat());
    assert!(number(&result, "losses_p") < 1e-6, "{result}");
    assert!(number(&result, "gaps_p") < 1e-3, "{result}");
    drop(bed);
    let bed = Testbed::start("probe-right", IPV4, &["--loss", "10%", "--seed", "3"]);
    let result = probe(
        &bed,
        &[flags.as_slice(), &["--expect", "loss=10%"]].concat(),
    );
    assert!(number(&result, "losses_p") > 1e-3, "{result}");
    assert!(number(&result, "gaps_p") > 1e-3, "{result}");
}
