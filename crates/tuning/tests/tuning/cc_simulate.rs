// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc simulate`: refusals and records.

use longhaul_testprograms::process::assert_refused;
use serde_json::Value;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .args(["cc", "simulate"])
        .args(args)
        .output()
        .unwrap()
}

const PATH: [&str; 4] = ["--rate", "1gbit", "--rtt", "40ms"];

/// Asserts a refusal in one line that contains all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    let message = assert_refused(&simulate(&[&PATH, args].concat()), 2, words);
    assert_eq!(message.trim().lines().count(), 1, "{message}");
}

#[test]
fn refuses_bad_input_in_one_line() {
    refused(&["--cc", "vegas"], &["vegas", "cubic"]);
    refused(&["--cc", "bic:shift=3"], &["shift", "ack_shift"]);
    refused(&["--cc", "bic:ack_shift=99"], &["ack_shift", "99"]);
    refused(&["--cc", "reno:beta=2"], &["reno", "beta=2"]);
    refused(&["--queue", "0bdp"], &["queue", "0bdp"]);
    refused(&["--loss", "2"], &["loss", "2"]);
    refused(&["--duration", "0s"], &["--duration 0", "at least 1us"]);
    refused(&["--mss", "100"], &["--mss 100", "536"]);
    refused(&["--window", "1KB"], &["--window 1KB"]);
    refused(
        &["--interval", "2h"],
        &["--interval 7200s", "--duration 60s"],
    );
    refused(&["--pacing", "fast"], &["pacing", "fast", "on"]);
    refused(&["--flow", "cc=reno,colour=red"], &["colour", "streams"]);
    refused(&["--flow", "reno"], &["\"reno\"", "KEY=VALUE"]);
    refused(&["--flow", "streams=many"], &["many"]);
    refused(
        &["--flow", "streams=6000", "--flow", "streams=6000"],
        &["streams", "10000"],
    );
    refused(&["--at", "soon: delay 80ms"], &["soon"]);
    refused(&["--forward", "rate=unlimited"], &["rate"]);
    refused(&["--duration", "1h", "--interval", "1us"], &["interval"]);
}

fn records(args: &[&str]) -> Vec<Value> {
    let output = simulate(&[&PATH, args, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn interval_records_sum_to_the_summary() {
    let all = records(&[
        "--duration",
        "5s",
        "--flow",
        "cc=reno",
        "--flow",
        "cc=cubic,start=1s",
    ]);
    let (summary, rest) = all.split_last().unwrap();
    assert_eq!(summary["record"], "summary");
    assert_eq!(summary["batched"], true);
    let flows: Vec<&Value> = rest.iter().filter(|r| r["record"] == "flow").collect();
    assert_eq!(flows.len(), 10, "two flows, five intervals of a second");
    let bits: f64 = flows
        .iter()
        .map(|r| r["goodput_bps"].as_f64().unwrap())
        .sum();
    let goodput = summary["goodput_bps"].as_f64().unwrap();
    assert!((bits / 5.0 / goodput - 1.0).abs() < 1e-9);
    let backoffs = rest.iter().filter(|r| r["record"] == "backoff").count() as u64;
    let counted: u64 = summary["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["backoffs"].as_u64().unwrap())
        .sum();
    assert_eq!(backoffs, counted);
    assert!(backoffs > 0);
}

#[test]
fn flow_ends_when_its_bytes_are_acknowledged() {
    let all = records(&["--flow", "bytes=10MB", "--interval", "100ms"]);
    let summary = all.last().unwrap();
    assert!(summary["simulated_s"].as_f64().unwrap() < 2.0, "{summary}");
    assert_eq!(summary["flows"][0]["bytes"], 6907 * 1448);
}

#[test]
fn simulates_loadable_algorithms_and_their_parameters() {
    let bytes = |cc: &str| {
        let all = records(&["--duration", "10s", "--loss", "0.005%", "--cc", cc]);
        all.last().unwrap()["flows"][0]["bytes"].as_u64().unwrap()
    };
    let (reno, scalable) = (bytes("reno"), bytes("lh_scalable"));
    assert!(scalable > 2 * reno, "{scalable} {reno}");
    assert_ne!(bytes("bic"), bytes("bic:ack_shift=1"));
}

#[test]
fn help_shows_examples_that_run() {
    let help = String::from_utf8(simulate(&["--help"]).stdout).unwrap();
    assert!(help.contains("longhaul cc simulate --rate 10gbit --rtt 350ms --duration 1h"));
    let output = simulate(&[
        "--rate",
        "1gbit",
        "--rtt",
        "76ms",
        "--at",
        "1s: delay 80ms",
        "--duration",
        "2s",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("(per packet)"),
        "{text}"
    );
}
