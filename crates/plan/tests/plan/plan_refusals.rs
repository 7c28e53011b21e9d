// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of `longhaul plan`, in one line that names the input, and its output.

use serde_json::Value;
use std::{fs, process::Command};

fn plan(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(longhaul_testprograms::longhaul())
        .arg("plan")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn refused(arguments: &[&str], named: &str) {
    let (code, out, error) = plan(arguments);
    assert_eq!(code, Some(2), "{arguments:?}: {error}");
    assert!(
        out.is_empty() && error.contains(named),
        "{arguments:?}: {error}"
    );
}

#[test]
fn plan_path_names_invalid_input() {
    let path = ["path", "--rate", "1gbit", "--rtt", "10ms"];
    for (flags, named) in [
        (["--loss", "60%"], "--loss 60"),
        (["--cc", "cubic,vegas"], "vegas"),
        (["--streams", "0"], "--streams"),
        (["--window", "1KB"], "less than two packets"),
        (["--queue", "long"], "long"),
        (["--duration", "1ms"], "--duration"),
        (["--mtu", "100"], "100"),
    ] {
        refused(&[&path[..], &flags].concat(), named);
    }
    refused(&["path", "--rate", "1gbit", "--rtt", "0ms"], "--rtt");
    refused(&["path", "--rate", "1gbit", "--rtt", "101s"], "--rtt 101s");
}

#[test]
fn plan_measure_names_invalid_input() {
    refused(&["measure"], "HOST");
    refused(&["measure", "a:b:c"], "a:b:c");
    refused(&["measure", "--method", "udp", "127.0.0.1"], "port");
    refused(
        &["measure", "--interval", "2s", "127.0.0.1:9"],
        "--interval",
    );
    refused(
        &["measure", "--serve", "127.0.0.1:0", "127.0.0.1"],
        "--serve",
    );
    refused(&["measure", "--limit", "5mbit", "127.0.0.1:9"], "--limit");
    refused(
        &["measure", "--duration", "1s", "127.0.0.1:9"],
        "--duration",
    );
    refused(&["measure", "127.0.0.1:0"], "port 0");
}

const SITES: &str = "
[sites.d]
relay = false
[[paths]]
from = 'a'
to = 'c'
rtt = '100ms'
rate = '1gbit'
[[paths]]
from = 'a'
to = 'b'
rtt = '50ms'
rate = '1gbit'
[[paths]]
from = 'b'
to = 'c'
rtt = '50ms'
rate = '1gbit'
[[paths]]
from = 'a'
to = 'd'
rtt = '1ms'
rate = '1gbit'
";

#[test]
fn plan_split_finds_the_middle_and_names_invalid_input() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sites.toml");
    fs::write(&file, SITES).unwrap();
    let file = file.to_str().unwrap();
    let split = [
        "split", "--sites", file, "--from", "a", "--to", "c", "--window", "1MB", "--json",
    ];
    let (code, out, error) = plan(&split);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["best"]["sites"], serde_json::json!(["a", "b", "c"]));
    // T_n = T n of equal legs: 1 MB over 50 ms.
    assert_eq!(result["best"]["throughput_bps"], 160e6);
    assert_eq!(result["chains"][0]["throughput_bps"], 80e6);

    refused(
        &["split", "--sites", file, "--from", "x", "--to", "c"],
        "\"x\"",
    );
    refused(
        &["split", "--sites", file, "--from", "a", "--to", "a"],
        "--from a --to a: want two different sites",
    );
    refused(
        &[
            "split", "--sites", file, "--from", "d", "--to", "c", "--relays", "0",
        ],
        "no path from d",
    );
    refused(
        &[
            "split",
            "--sites",
            file,
            "--from",
            "a",
            "--to",
            "c",
            "--overhead",
            "much",
        ],
        "much",
    );
    refused(
        &[
            "split",
            "--sites",
            "/nonexistent",
            "--from",
            "a",
            "--to",
            "c",
        ],
        "/nonexistent",
    );
}

#[test]
fn plan_path_reports_the_method_of_each_figure() {
    let path = [
        "path", "--rate", "100mbit", "--rtt", "20ms", "--loss", "1%", "--cc", "reno,bbr", "--json",
    ];
    let (code, out, error) = plan(&path);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&out).unwrap();
    let by = |at: usize| result["predictions"][at]["method"].clone();
    assert_eq!((by(0), by(1)), ("simulation".into(), "formula".into()));
    assert!(
        result["formulas"]
            .as_array()
            .unwrap()
            .iter()
            .any(|formula| formula["name"] == "Mathis")
    );
}
