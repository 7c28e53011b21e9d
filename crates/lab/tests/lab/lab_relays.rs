// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in scenarios with relays, with small files: emulated links, transparent relays, and chains
//! of relays.

use serde_json::Value;
use std::{path::Path, process::Command};

/// Whether the test can run. Without root it is skipped with ALLOW_SKIP=1, else it fails.
fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(
        rustix::process::geteuid().is_root(),
        "root and /dev/net/tun",
    )
}

/// Runs one cell of a scenario and returns its result.
fn run(scenario: &str, choices: &[&str], out: &Path) -> Value {
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run", scenario, "--quick"])
        .args(choices)
        .args(["--json", "--out"])
        .arg(out)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).expect(&messages);
    assert_eq!(
        result["cells"][0]["runs"][0]["failed"],
        Value::Null,
        "{messages}"
    );
    result
}

/// Returns the record of the only connection through a relay of the first cell.
fn connection(result: &Value, relay: &str, out: &Path) -> Value {
    let ending = format!("/relay-{relay}.jsonl");
    let files = result["raw"].as_array().unwrap().iter();
    let mut files = files.filter_map(Value::as_str);
    let file = files.find(|file| file.ends_with(&ending)).expect(relay);
    let records = std::fs::read_to_string(out.join(file)).unwrap();
    let mut ended = records
        .lines()
        .filter(|line| line.contains("\"record\":\"connection\""));
    let record = serde_json::from_str(ended.next().expect("a connection")).unwrap();
    assert_eq!(ended.next(), None);
    record
}

#[test]
fn builds_the_scenarios_chain_of_relays() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let choices = [
        "--filter",
        "way=SOCKS",
        "--filter",
        "n=3",
        "--set",
        "size=1MB",
    ];
    let result = run("split-count", &choices, out.path());
    assert_eq!(
        result["cells"][0]["relays"],
        serde_json::json!(["r2", "r1"])
    );
    let first = connection(&result, "r1", out.path());
    assert_eq!(first["kind"], "socks5");
    assert_eq!(first["next_hop"], "10.9.1.2:5124");
    let second = connection(&result, "r2", out.path());
    assert_eq!(second["kind"], "convert");
    assert!(
        second["bytes_down"].as_u64().unwrap() >= 1_000_000,
        "{second}"
    );
}

#[test]
fn relays_use_certificates_and_a_pool() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let way = "way=longhaul + pool + TLS";
    let choices = [
        "--filter",
        "access=1ms",
        "--filter",
        "size=100KB",
        "--filter",
        way,
    ];
    let result = run("relay-objects", &choices, out.path());
    let text = std::fs::read_to_string(
        out.path().join(
            result["raw"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .find(|file| file.ends_with("/relay-near.toml"))
                .unwrap(),
        ),
    )
    .unwrap();
    assert!(
        text.contains("near-key.pem") && text.contains("pool = 8"),
        "{text}"
    );
    let far = connection(&result, "far", out.path());
    assert!(far["bytes_down"].as_u64().unwrap() >= 100_000, "{far}");
    // The round trip of the path, and another for the data beyond 10 segments.
    let metrics = &result["cells"][0]["runs"][0];
    assert!(
        metrics["first_byte_s"].as_f64().unwrap() >= 0.18,
        "{metrics}"
    );
    assert!(metrics["download_s"].as_f64().unwrap() >= 0.36, "{metrics}");
}

#[test]
fn dvd_scenario_relays_all_data() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let choices = ["--filter", "relays=true", "--set", "size=3MB"];
    let result = run("nec-dvd", &choices, out.path());
    let cell = &result["cells"][0];
    assert_eq!(cell["relays"], serde_json::json!(["relay2", "relay1"]));
    assert_eq!(
        cell["runs"][0]["series"]["path_segments"]
            .as_array()
            .unwrap()
            .len(),
        3,
        "{cell}"
    );
    // One connection with all data went through each relay.
    for relay in ["relay1", "relay2"] {
        let record = connection(&result, relay, out.path());
        assert!(
            record["bytes_down"].as_u64().unwrap() >= 3_000_000,
            "{record}"
        );
    }
    // The cable has a timing report. A first byte needs two round trips of 26 ms.
    assert_eq!(result["links"].as_array().unwrap().len(), 1);
    assert!(
        cell["runs"][0]["first_byte_s"].as_f64().unwrap() >= 0.052,
        "{cell}"
    );
    assert_eq!(result["host"]["offloads"]["cable tso"], "on");
}
