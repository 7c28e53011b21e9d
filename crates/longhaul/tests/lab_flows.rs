// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flows of a scenario can be: congestion control, pacing and window of one flow, FTP.

use serde_json::Value;
use std::{fs, path::Path, process::Command};

/// Two hosts, so near that a run is over at once.
const WIRE: &str = r#"
title = "test"
question = "does it work?"
repetitions = 1
[[links]]
name = "wire"
kind = "veth"
between = ["server", "client"]
[[cells]]
vary = {}
"#;

/// Root, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
fn may_use_namespaces() -> bool {
    let root = rustix::process::geteuid().is_root();
    let allowed = std::env::var("ALLOW_SKIP").is_ok_and(|value| value == "1");
    assert!(root || allowed, "needs root; ALLOW_SKIP=1 skips this test");
    root
}

/// Root of the machine, which a user namespace's is not: eBPF needs it.
fn may_load() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap();
    users.split_whitespace().eq(["0", "0", "4294967295"]) && may_use_namespaces()
}

/// The scenario's result, and what was said.
fn run(flows: &str, out: &Path) -> (Value, String) {
    let file = out.join("test.toml");
    fs::write(&file, [WIRE, flows].concat()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["lab", "run"])
        .arg(&file)
        .args(["--json", "--out"])
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (result, said)
}

fn flow(name: &str, program: &str, keys: &str) -> String {
    format!(
        "[[flows]]\nname = '{name}'\nprogram = '{program}'\nfrom = 'server'\nto = 'client'\n{keys}\n"
    )
}

/// Samples of senders of more than a megabyte.
fn samples(result: &Value, out: &Path) -> Vec<Value> {
    let files = result["raw"].as_array().unwrap().iter();
    let mut files = files.filter_map(Value::as_str);
    let file = files
        .find(|file| file.ends_with("/tcp_info.jsonl"))
        .unwrap();
    let lines = fs::read_to_string(out.join(file)).unwrap();
    let samples = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    samples
        .filter(|sample: &Value| sample["bytes_acked"].as_u64() > Some(1_000_000))
        .collect()
}

fn good(result: &Value, said: &str) {
    assert_eq!(
        result["cells"][0]["runs"][0]["failed"],
        Value::Null,
        "{said}"
    );
    assert!(result["cells"][0]["runs"][0].is_object(), "{said}");
}

#[test]
fn each_flow_has_its_own_congestion_control_and_pace() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow(
            "down",
            "iperf3",
            "duration = '1s'\ncc = 'reno'\npace = '100mbit'",
        ),
        flow(
            "up",
            "iperf3",
            "duration = '1s'\ndirection = 'upload'\ncc = 'cubic+pace'\nwindow = '64KB'",
        ),
        flow(
            "get",
            "curl",
            "size = '20MB'\ncc = 'reno'\npace = '200mbit'",
        ),
        flow(
            "other",
            "curl",
            "size = '20MB'\ncc = 'cubic'\npace = '150mbit'",
        ),
    ];
    let (result, said) = run(&flows.concat(), out.path());
    good(&result, &said);
    let samples = samples(&result, out.path());
    let seen = |port: u64| {
        let of_port = |sample: &&Value| {
            ["local", "remote"].iter().any(|end| {
                let end = sample[*end].as_str().unwrap();
                end.ends_with(&format!(":{port}"))
            })
        };
        let sample = samples.iter().filter(of_port).next_back();
        let sample = sample.unwrap_or_else(|| panic!("no sample of port {port}"));
        let name = sample["congestion"].as_str().unwrap().to_owned();
        (name, sample["pacing_rate_bps"].as_f64().unwrap())
    };
    let close = |rate: f64, to: f64| (rate / to - 1.0).abs() < 0.01;
    let (name, rate) = seen(5201);
    assert!(name == "reno" && close(rate, 1e8), "{name} {rate}");
    assert_eq!(seen(5202).0, "cubic");
    let (name, rate) = seen(80);
    assert!(name == "reno" && close(rate, 2e8), "{name} {rate}");
    let (name, rate) = seen(8081);
    assert!(name == "cubic" && close(rate, 1.5e8), "{name} {rate}");
    let carried = |name: &str| {
        let metrics = &result["cells"][0]["metrics"];
        metrics[format!("{name}_goodput_bps")]["median"]
            .as_f64()
            .unwrap()
    };
    assert!(
        carried("get") < 2.05e8 && carried("down") < 1.05e8,
        "{said}"
    );
}

#[test]
fn longhauls_controls_are_there_for_the_run_each_with_its_parameters() {
    if !may_load() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow("plain", "iperf3", "duration = '1s'\ncc = 'lh_bic'"),
        flow(
            "three",
            "iperf3",
            "duration = '1s'\ncc = 'lh_bic:ack_shift=3'",
        ),
        flow(
            "get",
            "curl",
            "size = '20MB'\ncc = 'lh_bic:ack_shift=3+pace'",
        ),
    ];
    let (result, said) = run(&flows.concat(), out.path());
    good(&result, &said);
    let provided = result["congestion_controls"].as_array().unwrap();
    assert_eq!(provided.len(), 2, "{provided:?}");
    let name = |asked: &str| {
        let found = provided.iter().find(|one| one["asked"] == asked).unwrap();
        assert_eq!(found["by"], "longhaul");
        found["name"].as_str().unwrap().to_owned()
    };
    let (plain, three) = (name("lh_bic"), name("lh_bic:ack_shift=3"));
    assert!(plain.starts_with("lh_bic") && three.starts_with("lh_bic") && plain != three);
    assert_eq!(provided[1]["parameters"]["ack_shift"], 3);
    let used: std::collections::BTreeSet<String> = samples(&result, out.path())
        .iter()
        .map(|sample| sample["congestion"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(used, [plain.clone(), three.clone()].into());
    let left = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let left: Vec<&str> = left.split_whitespace().collect();
    assert!(!left.contains(&three.as_str()), "{left:?}");
}

#[test]
fn ftp_carries_files_both_ways_and_their_content_is_checked() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow("get", "ftp", "size = '3MB'"),
        flow("active", "ftp", "size = '3MB'\nactive = true"),
        flow("put", "ftp", "size = '3MB'\ndirection = 'upload'"),
    ];
    let (result, said) = run(&flows.concat(), out.path());
    good(&result, &said);
    let metrics = &result["cells"][0]["metrics"];
    for name in ["get", "active", "put"] {
        let seconds = &metrics[format!("{name}_download_s")]["median"];
        assert!(
            seconds.as_f64().is_some_and(|seconds| seconds > 0.0),
            "{metrics}"
        );
    }
    assert!(result["host"]["programs"]["vsftpd"].is_string());
}

#[test]
fn what_a_flow_cannot_be_is_refused_before_anything_is_touched() {
    let refusals = [
        (
            "program = 'copy'\nsize = '1MB'",
            "comes with the command longhaul copy",
        ),
        (
            "program = 'udt'\nduration = '1s'",
            "comes with the command longhaul udt",
        ),
        (
            "program = 'iperf3'\nduration = '1s'\ncc = 'reno:x=1'",
            "reno has no parameters",
        ),
        (
            "program = 'iperf3'\nduration = '1s'\ncc = 'bic:ack_shift=99'",
            "whole number",
        ),
        (
            "program = 'iperf3'\nduration = '1s'\npace = '1mbit'\ngap = '1ms'",
            "exclude",
        ),
        (
            "program = 'ftp'\nsize = '1MB'\ncc = 'reno'",
            "congestion_control",
        ),
        (
            "program = 'curl'\nsize = '1MB'\nwindow = '64KB'",
            "tcp_rmem",
        ),
    ];
    for (keys, reason) in refusals {
        let out = tempfile::tempdir().unwrap();
        let flows = format!("[[flows]]\nname = 'f'\nfrom = 'server'\nto = 'client'\n{keys}\n");
        let (_, said) = run(&flows, out.path());
        assert!(said.contains(reason), "{keys}: {said}");
        assert!(!out.path().join("raw").exists());
    }
}
