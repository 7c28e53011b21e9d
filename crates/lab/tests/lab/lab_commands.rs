// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows with commands: transferred bytes, resource use, leftover processes, failures, and missing
//! programs.

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Scenario of two adjacent hosts.
const HOSTS: &str = r#"
title = "test"
question = "does it work?"
repetitions = 1
timeout = "20s"

[[links]]
name = "wire"
kind = "veth"
endpoints = ["server", "client"]
"#;

/// Single cell.
const ALONE: &str = "[[include]]\nvalues = {}\n";

/// Whether the test may create namespaces. Without root it is skipped with ALLOW_SKIP=1, else it
/// fails.
fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(rustix::process::geteuid().is_root(), "root")
}

fn flow(size: &str, keys: &str) -> String {
    format!(
        "[[flows]]\nname = 'f'\nprogram = 'command'\nfrom = 'server'\nto = 'client'\nsize = '{size}'\n{keys}\n"
    )
}

fn run(parts: &[&str], out: &Path) -> Output {
    let file = out.join("test.toml");
    fs::write(&file, [HOSTS, &parts.concat()].concat()).unwrap();
    Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run"])
        .arg(&file)
        .args(["--json", "--out"])
        .arg(out)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs one cell with this flow, and returns its only run.
fn run_cell(flow: &str, out: &Path) -> Value {
    let output = run(&[ALONE, flow], out);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let run = result["cells"][0]["runs"][0].clone();
    assert!(run.is_object(), "{}", stderr(&output));
    run
}

/// Returns why the run of this flow failed.
fn failure(flow: &str) -> String {
    let out = tempfile::tempdir().unwrap();
    let run = run_cell(flow, out.path());
    let failed = run["failed"].as_str();
    failed.unwrap_or_else(|| panic!("{flow}: {run}")).to_owned()
}

#[test]
fn compares_the_file_that_a_command_created() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let copy = flow(
        "5MB",
        "command = ['cp', '{payload}', '{scratch.client}/copy']\noutput_file = 'copy'",
    );
    let run = run_cell(&copy, out.path());
    assert_eq!(run["failed"], Value::Null);
    for metric in ["goodput_bps", "cpu_s", "peak_memory_bytes"] {
        assert!(run[metric].as_f64() > Some(0.0), "{run}");
    }
    assert!(run["server_cpu_s"].is_null(), "{run}");
    let cut = "command = ['sh', '-c', 'head -c 10 {payload} > {scratch.client}/copy']\noutput_file = 'copy'";
    let failed = failure(&flow("5MB", cut));
    assert!(
        failed.contains("10 bytes arrived instead of 5000000"),
        "{failed}"
    );
    let nothing = failure(&flow("5MB", "command = ['true']\noutput_file = 'copy'"));
    assert!(nothing.contains("cannot open"), "{nothing}");
}

#[test]
fn server_is_ready_before_the_command() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let both = flow(
        "5MB",
        "command = ['iperf3', '--client', '{address.client}', '--port', '5000', '--bytes', '5000000']\n\
         server = ['sh', '-c', 'sleep 0.5; iperf3 --server --port 5000']\nserver_port = 5000",
    );
    let run = run_cell(&both, out.path());
    assert_eq!(run["failed"], Value::Null);
    assert!(run["goodput_bps"].as_f64() > Some(0.0), "{run}");
    let both = run["cpu_s"].as_f64().unwrap();
    let server = run["server_cpu_s"].as_f64().unwrap();
    assert!(0.0 < server && server < both, "{run}");
}

#[test]
fn numbers_that_a_command_prints_are_metrics() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let printing = |line: &str| {
        let command = format!("command = ['printf', '%s', '{line}']");
        flow("1B", &format!("{command}\nfigures = ['p99_us', 'first_s']"))
    };
    let run = run_cell(
        &printing(r#"{{"open": 2, "p99_us": 1.5, "first_s": null}"#),
        out.path(),
    );
    assert_eq!(run["p99_us"], 1.5);
    assert!(run["open"].is_null() && run["first_s"].is_null(), "{run}");
    let missing = failure(&printing(r#"{{"p50_us": 1}"#));
    assert!(
        missing.contains("printed no number \"p99_us\""),
        "{missing}"
    );
    let nothing = failure(&printing("done"));
    assert!(
        nothing.contains("printed no figures: \"done\""),
        "{nothing}"
    );
}

#[test]
fn failed_command_fails_the_run_with_its_last_output() {
    if !may_use_namespaces() {
        return;
    }
    let script = "echo it begins >&2; echo no luck >&2; echo; exit 7";
    let failed = failure(&flow("1MB", &format!("command = ['sh', '-c', '{script}']")));
    assert!(failed.contains("sh ended with 7: no luck"), "{failed}");
    let killed = failure(&flow("1MB", "command = ['sh', '-c', 'kill -9 $$']"));
    assert!(killed.contains("sh ended with 137: no output"), "{killed}");
    let server = "command = ['sleep', '20']\nserver = ['sh', '-c', 'echo no port >&2; exit 3']\nserver_port = 5000";
    let failed = failure(&flow("1MB", server));
    assert!(
        failed.contains("before it could listen on port 5000: no port"),
        "{failed}"
    );
}

#[test]
fn command_is_killed_at_the_timeout() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let flow = flow(
        "1MB",
        "command = ['sh', '-c', 'echo asleep >&2; sleep 77777']",
    );
    let file = HOSTS.replace("20s", "1s");
    fs::write(out.path().join("test.toml"), [&file, ALONE, &flow].concat()).unwrap();
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run", "test.toml", "--json", "--out", "."])
        .current_dir(out.path())
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = result["cells"][0]["runs"][0]["failed"].as_str().unwrap();
    assert!(
        failed.contains("longer than the timeout of 1 s: asleep"),
        "{failed}"
    );
    assert_eq!(processes("77777"), 0);
}

/// Counts the processes of this machine with this argument.
fn processes(word: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let has = |line: &Vec<u8>| {
        line.split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
    };
    lines.filter(has).count()
}

/// Runs a command contained, and returns its report.
fn contained(words: &[&str], out: &Path) -> Value {
    let report = out.join("report.json");
    let ended = Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "contain", "--report"])
        .arg(&report)
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    serde_json::from_slice(&fs::read(report).unwrap()).unwrap()
}

#[test]
fn processes_of_a_command_end_with_it() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    contained(&["sh", "-c", "setsid sleep 88888 & exit 0"], out.path());
    assert_eq!(processes("88888"), 0);
}

#[test]
fn measures_resource_use_of_all_processes() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let used = |words: &[&str], what| contained(words, out.path())[what].as_f64().unwrap();
    let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let orphan =
        format!("(setsid sh -c '{count}; touch done') & while ! [ -e done ]; do sleep 0.01; done");
    let away = format!("cd {}; {orphan}", out.path().display());
    let (idle, busy) = (
        used(&["true"], "cpu_s"),
        used(&["sh", "-c", &away], "cpu_s"),
    );
    assert!(busy > idle + 0.02, "{idle} {busy}");
    let large = "head -c 60000000 /dev/zero | tail -c 40000000 > /dev/null";
    let (small, large) = (
        used(&["true"], "peak_memory_bytes"),
        used(&["sh", "-c", large], "peak_memory_bytes"),
    );
    assert!(small < 20e6 && large > 40e6, "{small} {large}");
}

#[test]
fn skips_cells_whose_program_is_not_installed() {
    if !may_use_namespaces() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let tools = "[matrix]\ntool = ['cp', 'no-such-program']\n";
    let copy = flow(
        "1MB",
        "command = ['${tool}', '{payload}', '{scratch.client}/copy']",
    );
    let output = run(&[tools, &copy], out.path());
    let messages = stderr(&output);
    assert!(output.status.success(), "{messages}");
    let line =
        "Skipped cells, because no-such-program is not on this machine: tool=no-such-program";
    assert!(messages.contains(line), "{messages}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["cells"].as_array().unwrap().len(), 1);
    assert_eq!(result["about"]["notes"][0], line);

    let out = tempfile::tempdir().unwrap();
    let alone = flow("1MB", "command = ['no-such-program']");
    let output = run(&[ALONE, &alone], out.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("not on this machine: no-such-program"));
}
