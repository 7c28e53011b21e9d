// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of `longhaul plan`, in one line that names the input, and its output.

use serde_json::Value;
use std::{fs, process::Command};

fn plan(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(longhaul_testbed::longhaul())
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

#[test]
fn plan_validate_requires_a_result() {
    refused(
        &["validate", "/nonexistent/result.json"],
        "/nonexistent/result.json",
    );
    refused(
        &["validate", env!("CARGO_MANIFEST_PATH")],
        "give a directory that 'longhaul lab run --out' wrote",
    );
}

const SCENARIO: &str = "title = 't'
question = 'q'
[parameters]
rate = '50mbit'
simulated = true
[matrix]
delay = ['5ms', '20ms']
[[links]]
name = 'wan'
endpoints = ['a', 'b']
rate = '${rate}'
delay = '${delay}'
[[flows]]
name = 'bulk'
program = 'iperf3'
from = 'a'
to = 'b'
duration = '2s'
cc = 'reno'
";

/// Predictions require the scenario as it was run: one that was changed since is refused.
#[test]
fn plan_validate_requires_the_scenario_that_was_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("mine.toml");
    let chosen: [&[&str]; 4] = [
        &[],
        &["--repetitions", "2", "--seed", "7"],
        &["--filter", "delay=20ms"],
        &["--set", "rate=80mbit"],
    ];
    for (n, options) in chosen.into_iter().enumerate() {
        let out = path(&format!("out{n}"));
        fs::write(&file, SCENARIO).unwrap();
        let run = Command::new(longhaul_testbed::longhaul())
            .args(["lab", "run", &file, "--simulate", "--out", &out])
            .args(options)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        let set: &[&str] = if n == 3 { options } else { &[] };
        let check = [&["validate", "--scenario", &file, &out], set].concat();
        let (code, _, error) = plan(&check);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{options:?}");

        for changed in [
            SCENARIO.replace("duration = '2s'", "duration = '3s'"),
            SCENARIO.replace("'20ms'", "'40ms'"),
            SCENARIO.replace("'reno'", "'cubic'"),
        ] {
            fs::write(&file, changed).unwrap();
            refused(&check, "mine.toml differs from the scenario that");
        }
    }
    // Selections that differ from those of the run.
    fs::write(&file, SCENARIO).unwrap();
    let (run, way) = (path("out0"), "give the scenario of the run");
    refused(
        &[
            "validate",
            "--scenario",
            &file,
            "--set",
            "rate=80mbit",
            &run,
        ],
        way,
    );
    refused(&["validate", "--scenario", &file, &path("out3")], way);
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
fn old_keys_of_sites_work_and_warn() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sites.toml");
    fs::write(&file, SITES.replace("[[paths]]", "[[legs]]")).unwrap();
    let file = file.to_str().unwrap();
    let split = [
        "split", "--sites", file, "--from", "a", "--to", "c", "--json",
    ];
    let (code, _, warnings) = plan(&split);
    assert_eq!(code, Some(0), "{warnings}");
    let warning = format!("{file}:4: legs is now paths;");
    assert!(warnings.contains(&warning), "{warnings}");
    let (code, _, warnings) = plan(&["check", "/nonexistent"]);
    assert_eq!(code, Some(2), "{warnings}");
    assert!(
        warnings.contains("plan check is now plan validate;"),
        "{warnings}"
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
