// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of a scenario: congestion control, pacing and window of each flow, FTP and UDT.

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Scenario of two hosts, without the options of the link between them.
const HOSTS: &str = r#"
title = "test"
question = "does it work?"
repetitions = 1
[[include]]
values = {}
[[links]]
name = "wire"
endpoints = ["server", "client"]
"#;

/// Link without a limit, for short runs.
const WIRE: &str = "kind = 'veth'\n";

/// Link with a rate at which 50 MB take two seconds, so that samples every 0.1 s include the
/// transfer.
const LINE: &str = "rate = '200mbit'\n";

/// Whether the test may create namespaces. Without root it is skipped with ALLOW_SKIP=1, else it
/// fails.
fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(rustix::process::geteuid().is_root(), "root")
}

/// Lock for tests that register congestion controls, which needs root on the machine, not in a user
/// namespace. Their names apply to the whole machine, so one test runs at a time, those of
/// `longhaul cc` included.
fn may_load() -> Option<File> {
    let root = rustix::process::geteuid().is_root()
        && !longhaul_testprograms::skip::is_in_user_namespace();
    longhaul_testprograms::skip::require_privileged(root, "eBPF, which takes root").then(|| {
        let lock = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock
    })
}

fn registered() -> BTreeSet<String> {
    let names = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = fs::read_to_string(names).unwrap();
    names.split_whitespace().map(str::to_owned).collect()
}

/// Runs the flows, and returns the result and the messages.
fn run(flows: &str, out: &Path) -> (Value, String) {
    run_over(WIRE, flows, out)
}

fn run_over(link: &str, flows: &str, out: &Path) -> (Value, String) {
    let file = out.join("test.toml");
    fs::write(&file, [HOSTS, link, flows].concat()).unwrap();
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run"])
        .arg(&file)
        .args(["--json", "--out"])
        .arg(out)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (result, messages)
}

fn flow(name: &str, program: &str, keys: &str) -> String {
    format!(
        "[[flows]]\nname = '{name}'\nprogram = '{program}'\nfrom = 'server'\nto = 'client'\n{keys}\n"
    )
}

/// Samples of senders with more than a megabyte acknowledged.
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

fn assert_succeeded(result: &Value, messages: &str) {
    assert_eq!(
        result["cells"][0]["runs"][0]["failed"],
        Value::Null,
        "{messages}"
    );
    assert!(result["cells"][0]["runs"][0].is_object(), "{messages}");
}

#[test]
fn flows_have_their_own_congestion_control_and_pacing() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow(
            "down",
            "iperf3",
            "duration = '1s'\ncc = 'reno'\npacing = '100mbit'",
        ),
        flow(
            "up",
            "iperf3",
            "duration = '1s'\ndirection = 'upload'\ncc = 'cubic+pace'\nwindow = '64KB'",
        ),
        flow(
            "get",
            "curl",
            "size = '20MB'\ncc = 'reno'\npacing = '200mbit'",
        ),
        flow(
            "other",
            "curl",
            "size = '20MB'\ncc = 'cubic'\npacing = '150mbit'",
        ),
    ];
    let (result, messages) = run(&flows.concat(), out.path());
    assert_succeeded(&result, &messages);
    let samples = samples(&result, out.path());
    let seen = |port: u64| {
        let of_port = |sample: &&Value| {
            ["local", "remote"].iter().any(|end| {
                let end = sample[*end].as_str().unwrap();
                end.ends_with(&format!(":{port}"))
            })
        };
        let sample = samples.iter().rfind(of_port);
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
    let window = samples
        .iter()
        .filter(|sample| sample["remote"].as_str().unwrap().ends_with(":5202"));
    let window = window
        .filter_map(|sample| sample["send_window_bytes"].as_u64())
        .max();
    assert!(
        window.is_some_and(|window| (32_000..=66_000).contains(&window)),
        "{window:?}"
    );
    let carried = |name: &str| {
        let metrics = &result["cells"][0]["metrics"];
        metrics[format!("{name}_goodput_bps")]["median"]
            .as_f64()
            .unwrap()
    };
    assert!(
        carried("get") < 2.05e8 && carried("down") < 1.05e8,
        "{messages}"
    );
}

#[test]
fn registers_own_controls_with_parameters_for_the_run() {
    let Some(_lock) = may_load() else {
        return;
    };
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
    let (result, messages) = run(&flows.concat(), out.path());
    assert_succeeded(&result, &messages);
    let provided = result["congestion_controls"].as_array().unwrap();
    assert_eq!(provided.len(), 2, "{provided:?}");
    let name = |requested: &str| {
        let found = provided
            .iter()
            .find(|one| one["requested"] == requested)
            .unwrap();
        assert_eq!(found["provider"], "longhaul");
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
    assert!(!registered().contains(&three), "{:?}", registered());
}

#[test]
fn relay_legs_can_use_own_controls() {
    let Some(_lock) = may_load() else {
        return;
    };
    let relay = "[[links]]\nname = 'side'\nkind = 'veth'\nendpoints = ['client', 'relay']\n\
                 [relays.relay]\nhttp = '0.0.0.0:3128'\nallow_from = '10.9.0.0/16'\n\
                 cc_downstream = 'lh_scalable:md_shift=2'\n";
    let get = flow("get", "curl", "size = '50MB'\nproxy = 'http://relay:3128'");
    let out = tempfile::tempdir().unwrap();
    let (result, messages) = run_over(LINE, &[relay, &get].concat(), out.path());
    assert_succeeded(&result, &messages);
    let provided = &result["congestion_controls"][0];
    assert_eq!(provided["requested"], "lh_scalable:md_shift=2");
    let samples = samples(&result, out.path());
    let seen = |host: &str| {
        let of_host = samples.iter().filter(|sample| sample["host"] == host);
        let names = of_host.map(|sample| sample["congestion"].clone());
        names.collect::<Vec<_>>()
    };
    assert!(seen("relay").contains(&provided["name"]), "{samples:?}");
    assert!(!seen("server").contains(&provided["name"]), "{samples:?}");
}

#[test]
fn sigkill_removes_own_controls() {
    let Some(_lock) = may_load() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("test.toml");
    let flow = flow(
        "bulk",
        "iperf3",
        "duration = '60s'\ncc = 'lh_scalable:ai=77'",
    );
    fs::write(&file, [HOSTS, WIRE, &flow].concat()).unwrap();
    let before = registered();
    let mut lab = Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run"])
        .arg(&file)
        .arg("--out")
        .arg(out.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let new = || {
        let now = registered();
        let mut new = now
            .difference(&before)
            .filter(|name| name.starts_with("lh_scalable"));
        new.next().cloned()
    };
    let name = until(new).expect("it is registered");
    kill_process(Pid::from_child(&lab), Signal::KILL).unwrap();
    lab.wait().unwrap();
    until(|| (!registered().contains(&name)).then_some(())).expect("it is gone");
}

/// Waits for `poll` to succeed, within a time that only a failure takes.
fn until<T>(poll: impl Fn() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        let found = poll();
        if found.is_some() || Instant::now() > give_up {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ftp_server_uses_the_control_of_its_host() {
    let Some(_lock) = may_load() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let host = "[hosts.server]\ncongestion_control = 'lh_scalable:md_shift=2'\n";
    let flow = flow("get", "ftp", "size = '50MB'");
    let (result, messages) = run_over(LINE, &[host, &flow].concat(), out.path());
    assert_succeeded(&result, &messages);
    let name = result["congestion_controls"][0]["name"].as_str().unwrap();
    let samples = samples(&result, out.path());
    assert!(!samples.is_empty());
    assert!(
        samples.iter().all(|sample| sample["congestion"] == name),
        "{samples:?}"
    );
}

#[test]
fn ftp_flow_can_have_its_own_control() {
    if !may_use_namespaces() {
        return;
    }
    let host = "[hosts.server]\ncongestion_control = 'cubic'\n";
    for direction in ["download", "upload"] {
        let out = tempfile::tempdir().unwrap();
        let keys = format!("size = '50MB'\ncc = 'reno'\ndirection = '{direction}'");
        let flow = flow("f", "ftp", &keys);
        let (result, messages) = run_over(LINE, &[host, &flow].concat(), out.path());
        assert_succeeded(&result, &messages);
        let samples = samples(&result, out.path());
        assert!(!samples.is_empty(), "{direction}");
        assert!(
            samples.iter().all(|sample| sample["congestion"] == "reno"),
            "{direction}: {samples:?}"
        );
    }
}

#[test]
fn ftp_transfers_files_in_both_directions() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow("get", "ftp", "size = '3MB'"),
        flow("active", "ftp", "size = '3MB'\nftp_active = true"),
        flow("put", "ftp", "size = '3MB'\ndirection = 'upload'"),
    ];
    let (result, messages) = run(&flows.concat(), out.path());
    assert_succeeded(&result, &messages);
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
fn ftp_works_through_proxies() {
    if !may_use_namespaces() {
        return;
    }
    let relay = "[[links]]\nname = 'side'\nkind = 'veth'\nendpoints = ['client', 'relay']\n\
                 [relays.relay]\nsocks5 = '0.0.0.0:1080'\nhttp = '0.0.0.0:3128'\n\
                 allow_from = '10.9.0.0/16'\n";
    let flows = [
        relay.to_owned(),
        flow(
            "socks",
            "ftp",
            "size = '1MB'\nproxy = 'socks5h://relay:1080'",
        ),
        flow("http", "ftp", "size = '1MB'\nproxy = 'http://relay:3128'"),
        flow(
            "put",
            "ftp",
            "size = '1MB'\nproxy = 'socks5h://relay:1080'\ndirection = 'upload'",
        ),
    ];
    let out = tempfile::tempdir().unwrap();
    let (result, messages) = run(&flows.concat(), out.path());
    assert_succeeded(&result, &messages);
    let directory = fs::read_dir(out.path().join("raw")).unwrap();
    let directory = directory
        .flatten()
        .find(|entry| entry.path().is_dir())
        .unwrap();
    let records = fs::read_to_string(directory.path().join("relay-relay.jsonl")).unwrap();
    let connections = records.matches("\"record\":\"connection\"").count();
    // SOCKS has a control and a data connection for each direction; HTTP has one.
    assert!(connections >= 5, "{connections}: {records}");
}

#[test]
fn refuses_invalid_flows_before_any_change() {
    let refusals = [
        (
            "program = 'copy'\nsize = '1MB'",
            "unknown variant `copy`, expected one of `curl`",
        ),
        (
            "program = 'udt'\nduration = '1s'\ncc = 'reno'",
            "has a rate control of its own",
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
            "program = 'iperf3'\nduration = '1s'\npacing = '1mbit'\ninter_packet_gap = '1ms'",
            "exclude",
        ),
        (
            "program = 'ftp'\nsize = '1MB'\npacing = true",
            "pacing and inter_packet_gap are keys of",
        ),
        (
            "program = 'curl'\nsize = '1MB'\nwindow = '64KB'",
            "tcp_rmem",
        ),
    ];
    for (keys, reason) in refusals {
        let out = tempfile::tempdir().unwrap();
        let flows = format!("[[flows]]\nname = 'f'\nfrom = 'server'\nto = 'client'\n{keys}\n");
        let (_, messages) = run(&flows, out.path());
        assert!(messages.contains(reason), "{keys}: {messages}");
        assert!(!out.path().join("raw").exists());
    }
}

#[test]
fn udt_flows_are_measured_like_tcp_flows() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flows = [
        flow(
            "ours",
            "udt",
            "cc = 'udt'\nduration = '2s'\nomit = '1s'\ndirection = 'upload'",
        ),
        flow("down", "udt", "size = '2MB'\nstreams = 2\nstart = '3500ms'"),
        flow(
            "theirs",
            "iperf3",
            "cc = 'reno'\nduration = '2s'\nomit = '1s'",
        ),
        "[[measure]]\nname = 'late_bps'\nmetric = 'goodput_bps'\nflow = 'ours'\nfrom = '1s'\n"
            .to_owned(),
        "[[measure]]\nname = 'trip_us'\nmetric = 'srtt_us'\nflow = 'ours'\nfrom = '1s'\n"
            .to_owned(),
    ];
    let (result, messages) = run_over(LINE, &flows.concat(), out.path());
    assert_succeeded(&result, &messages);
    let run = &result["cells"][0]["runs"][0];
    for metric in [
        "ours_goodput_bps",
        "down_goodput_bps",
        "theirs_goodput_bps",
        "late_bps",
        "trip_us",
    ] {
        assert!(run[metric].as_f64() > Some(1.0), "{metric}: {run}");
    }
    // On a busy machine the flows' times differ, so their goodputs do not add up to the line's rate. A late emulator may
    // let a backlog through, and says so.
    let is_late = run["overload"].is_string();
    for metric in ["ours_goodput_bps", "theirs_goodput_bps"] {
        assert!(run[metric].as_f64() < Some(210e6) || is_late, "{run}");
    }
}
