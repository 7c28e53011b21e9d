// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's own scenario, small: emulated links and transparent relays, the bytes proved.

use std::process::Command;

#[test]
fn the_dvd_scenario_relays_real_bytes() {
    let root = rustix::process::geteuid().is_root();
    let allowed = std::env::var("ALLOW_SKIP").is_ok_and(|value| value == "1");
    assert!(
        root || allowed,
        "needs root and /dev/net/tun; ALLOW_SKIP=1 skips this test"
    );
    if !root {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args([
            "lab",
            "run",
            "dvd-download",
            "--quick",
            "--only",
            "relays=true",
        ])
        .args(["--set", "size=3MB", "--json", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cell = &result["cells"][0];
    assert_eq!(cell["relays"], serde_json::json!(["relay2", "relay1"]));
    assert_eq!(
        cell["runs"][0]["series"]["legs"].as_array().unwrap().len(),
        3,
        "{cell}"
    );
    // One connection went through each relay, all of it.
    for relay in ["relay1", "relay2"] {
        let file = out
            .path()
            .join(format!("raw/01-two-relays-1/relay-{relay}.jsonl"));
        let records = std::fs::read_to_string(file).unwrap();
        let ended = records
            .lines()
            .find(|line| line.contains("\"record\":\"connection\""));
        let record: serde_json::Value = serde_json::from_str(ended.expect("a connection")).unwrap();
        assert!(
            record["bytes_down"].as_u64().unwrap() >= 3_000_000,
            "{record}"
        );
    }
    // The cable accounted for what it did; a first byte needs two round trips of 26 ms.
    assert_eq!(result["links"].as_array().unwrap().len(), 1);
    assert!(
        cell["runs"][0]["first_byte_s"].as_f64().unwrap() >= 0.052,
        "{cell}"
    );
    assert_eq!(result["host"]["offloads"]["cable tso"], "on");
}
