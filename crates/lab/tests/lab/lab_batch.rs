// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab run` of several scenarios: one directory each, a page over all, and results that
//! are up to date are skipped.

use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Simulated scenario, which needs neither root nor time.
const SCENARIO: &str = r#"
title = "TITLE"
question = "how fast?"
repetitions = 1
simulated = true

[[include]]
values = {}

[[links]]
name = "path"
endpoints = ["a", "b"]
rate = "10mbit"
delay = "5ms"

[[flows]]
name = "bulk"
program = "iperf3"
from = "a"
to = "b"
duration = "2s"

[[check]]
name = "fast enough"
value = "goodput_bps"
threshold = ">= WANT"
"#;

/// Writes `NAME.toml`, whose check holds if at most 10 Mbit/s are wanted.
fn scenario(directory: &Path, name: &str, want: &str) {
    let text = SCENARIO.replace("TITLE", name).replace("WANT", want);
    fs::write(directory.join(name).with_extension("toml"), text).unwrap();
}

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    lab_into(directory, "out", arguments)
}

fn lab_into(directory: &Path, out: &str, arguments: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .current_dir(directory)
        .args(["lab", "run", "--out", out])
        .args(arguments)
        .output()
        .unwrap()
}

fn began(directory: &Path, name: &str) -> String {
    let text = fs::read(directory.join("out").join(name).join("result.json")).unwrap();
    let result: Value = serde_json::from_slice(&text).unwrap();
    result["started"].as_str().unwrap().to_owned()
}

/// Changes a result as if a program had been missing.
fn fail(directory: &Path, name: &str) {
    let file = directory.join("out").join(name).join("result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    result["cells"][0]["runs"][0]["failed"] = "no iperf3".into();
    fs::write(file, result.to_string()).unwrap();
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn skips_results_that_are_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    scenario(at, "one", "1e6");
    scenario(at, "two", "1e6");
    let both = ["one.toml", "two.toml"];
    let first = lab(at, &both);
    let text = utf8(&first.stdout);
    assert!(first.status.success(), "{}", utf8(&first.stderr));
    assert!(
        text.contains("2 of 2 scenarios passed all checks"),
        "{text}"
    );
    let index = fs::read_to_string(at.join("out/index.html")).unwrap();
    assert!(index.contains("./one/report.html") && index.contains("./two/report.html"));

    let (one, two) = (began(at, "one"), began(at, "two"));
    fs::remove_dir_all(at.join("out/two")).unwrap();
    let second = lab(at, &both);
    assert!(utf8(&second.stderr).contains("(1/2) one: up to date, skipped"));
    assert_eq!(began(at, "one"), one);
    assert_ne!(began(at, "two"), two);

    fail(at, "two");
    let third = lab(at, &both);
    assert!(utf8(&third.stderr).contains("(1/2) one: up to date, skipped"));
    assert!(!utf8(&third.stderr).contains("(2/2) two: up to date"));
    assert!(third.status.success(), "{}", utf8(&third.stderr));

    // Another seed is another experiment.
    lab(at, &[&both[..], &["--seed", "8"]].concat());
    assert_ne!(began(at, "one"), one);
    let one = began(at, "one");
    lab(at, &[&both[..], &["--seed", "8", "--restart"]].concat());
    assert_ne!(began(at, "one"), one);
}

#[test]
fn failed_check_does_not_end_the_batch() {
    let directory = tempfile::tempdir().unwrap();
    scenario(directory.path(), "one", "1e9");
    scenario(directory.path(), "two", "1e6");
    for _ in 0..2 {
        let output = lab(directory.path(), &["one.toml", "two.toml"]);
        let text = utf8(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("1 of 1 failed"), "{text}");
        assert!(
            text.contains("1 of 2 scenarios passed all checks"),
            "{text}"
        );
    }
}

/// Replaces a result by the journal of an interrupted experiment whose runs are complete. For runs
/// marked in `late`, the emulator was late.
fn interrupt(directory: &Path, name: &str, late: &[bool]) {
    let out = directory.join("out").join(name);
    let file = out.join("result.json");
    let result: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let began = json!({ "began": { "at": result["started"], "identity": result["identity"] } });
    let mut lines = vec![began];
    for (index, late) in late.iter().enumerate() {
        let mut run = json!({ "goodput_bps": 7.6e6 });
        if *late {
            run["overload"] = json!("emulator late: median lateness of link path 3 ms > 250 µs");
        }
        lines.push(
            json!({ "done": { "index": index, "spent_s": 1.0, "offloads": {}, "run": run } }),
        );
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(out.join("raw/.journal.jsonl"), text).unwrap();
    fs::remove_file(file).unwrap();
}

#[test]
fn late_emulator_leaves_checks_undecided() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // 9 Mbit/s are wanted, and 7.6 measured where the emulator is late.
    for name in ["one", "two"] {
        scenario(at, name, "9e6");
        lab_into(at, &format!("out/{name}"), &[&format!("{name}.toml")]);
    }
    interrupt(at, "one", &[true]);
    let alone = lab_into(at, "out/one", &["one.toml"]);
    let (out, error) = (utf8(&alone.stdout), utf8(&alone.stderr));
    assert_eq!(alone.status.code(), Some(4), "{out}{error}");
    let line = "check undecided: fast enough: emulator late; measured 7600000, threshold >= 9e6";
    assert!(out.contains(line), "{out}");
    assert!(error.contains("1 of 1 checks undecided"), "{error}");
    let page = fs::read_to_string(at.join("out/one/report.html")).unwrap();
    assert!(page.contains("1 of 1 checks undecided"));
    let result: Value =
        serde_json::from_slice(&fs::read(at.join("out/one/result.json")).unwrap()).unwrap();
    assert_eq!(result["checks"][0]["pass"], false);
    assert_eq!(result["checks"][0]["undecided"], "emulator late");

    // Skipped, but reported again.
    let both = lab(at, &["one.toml", "two.toml"]);
    let text = utf8(&both.stdout);
    assert_eq!(both.status.code(), Some(4), "{text}{}", utf8(&both.stderr));
    assert!(text.contains("1 of 1 undecided"), "{text}");
    assert!(text.contains("1 of 2 scenarios passed all"), "{text}");

    // A check that fails for certain has precedence.
    interrupt(at, "two", &[false]);
    let broken = lab(at, &["one.toml", "two.toml"]);
    assert_eq!(broken.status.code(), Some(1), "{}", utf8(&broken.stdout));
}

#[test]
fn starts_nothing_if_one_scenario_is_invalid() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    scenario(at, "one", "1e6");
    fs::create_dir(at.join("other")).unwrap();
    scenario(&at.join("other"), "one", "1e6");
    for (arguments, reason) in [
        (&["one.toml", "two.toml"][..], "two.toml"),
        (
            &["one.toml", "other/one.toml"],
            "another scenario here is called one too",
        ),
        (&["one.toml", "one.toml", "--set", "x=1"], "x"),
        (&["--all", "one.toml"], "--all"),
        (&[], "SCENARIO"),
    ] {
        let output = lab(at, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            utf8(&output.stderr).contains(reason),
            "{}",
            utf8(&output.stderr)
        );
        assert!(!at.join("out").exists(), "{arguments:?}");
    }
}
