// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quick part of each built-in scenario, with real traffic wherever it takes seconds.
//!
//! Each time the test asserts what noise cannot change. Every run succeeded, so every byte arrived
//! as sent: a wrong SHA-256 fails a run. Every cell has every metric, and the page shows every
//! table and figure. A simulated part must also pass the scenario's checks, because it is the same
//! each time.
//!
//! On sockets, the machine's load decides the speed of a run. A part is repeated if a check does
//! not hold. After three failures the test counts as skipped, with the name of the check.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Part of a scenario: its name, and arguments that select cells and parameters.
type Part = (&'static str, &'static str);

/// The groups run concurrently. They need what `make test` installs.
const NEC: &[Part] = &[
    (
        "demo",
        "--only client=paper --only loss=0.0 --set size=500MB",
    ),
    ("nec-dvd", "--only relays=false|true --set size=50MB"),
    ("nec-clients", "--only relays=true"),
    (
        "nec-linux",
        "--only direction=download --only loss=0.001 --only delay=2ms",
    ),
    (
        "nec-winxp",
        "--only direction=upload --only loss=0.0 --only delay=5ms",
    ),
    ("nec-aggregate", "--only connections=4"),
    (
        "nec-background",
        "--only access=0.5ms --only relaying=cubic --only mix=1+1",
    ),
];
const ACKS_AND_RESERVOIR: &[Part] = &[
    ("ack-ratio", "--only n=1"),
    ("ack-pacing", "--filter paced=true"),
    (
        "reservoir-nic",
        "--only queue=100p --only interface=slow --set duration=5s",
    ),
    (
        "reservoir-ipg",
        "--only gap=512 --set duration=5s --set omit=2s",
    ),
    (
        "reservoir-spacing",
        "--only control=lh_trc --set duration=5s",
    ),
    (
        "reservoir-24000km",
        "--only streams=16 --only way=DECP --set duration=10s",
    ),
];
const SPLIT: &[Part] = &[
    ("split-position", "--only place=25-25 --set size=5MB"),
    (
        "split-count",
        "--only n=3 --only way=SOCKS|Squid|HAProxy --set size=5MB",
    ),
    ("split-internet", "--only by=Kagoshima|none"),
    ("first-recipe", "--only hosts=default"),
    ("split-osaka", "--only by=Fukuoka --only size=8MiB"),
];
const JGN2: &[Part] = &[
    ("jgn2-single", "--simulate --only control=reno|bic|htcp"),
    (
        "jgn2-rtt-fairness",
        "--only control=fast --only rtt_ratio=2",
    ),
    ("jgn2-delay-switch", "--simulate --only control=fast"),
    ("jgn2-rate-switch", "--simulate --only control=bic"),
    (
        "jgn2-coexistence",
        "--only first=bic --only second=htcp|udt|bbr",
    ),
];
const TODAY_AND_OWN: &[Part] = &[
    (
        "today",
        "--only hosts=tuned --only loss=0.001 --only choice=cubic|relays+bbr",
    ),
    ("today-fast", "--only rate=10gbit --only loss=0.0001"),
    (
        "relay-objects",
        "--only size=10KB --only access=1ms --only way=direct|longhaul",
    ),
    (
        "relay-efficiency",
        "--only direction=upload --only loss=0.001 --only delay=1ms",
    ),
    (
        "striping",
        "--only streams=4 --only direction=download --set duration=4s",
    ),
    ("copy-limit", "--only rtt=20ms --set size=100MB"),
    ("link-long-fat", "--only rate=1gbit --set duration=4s"),
    ("link-proofs", "--only proof=delay"),
    ("link-beside-veth", "--repetitions 1"),
    ("whole-path", ""),
];

/// Whether the test may create namespaces. Without root it is skipped with ALLOW_SKIP=1, else it
/// fails.
fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::require(rustix::process::geteuid().is_root(), "root (CAP_SYS_ADMIN)")
}

fn longhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testbed::longhaul());
    command.arg("lab").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Arguments of a part. A plus stands for one between spaces, as in the names of some choices.
fn words(part: &str) -> Vec<String> {
    part.split_whitespace()
        .map(|word| word.replace('+', " + "))
        .collect()
}

fn run(parts: &[Part]) {
    if !may_use_namespaces() {
        return;
    }
    for part in parts {
        if part.1.contains("--simulate") {
            assert_eq!(missed_checks(part), Vec::<String>::new());
        } else {
            try_on_sockets(part);
        }
    }
}

/// Attempts of a part on sockets. A short run may be slowed down by something that the emulator
/// does not notice.
const TRIES: usize = 3;

fn try_on_sockets(part: &Part) {
    let mut missed = Vec::new();
    for _ in 0..TRIES {
        missed = missed_checks(part);
        if missed.is_empty() {
            return;
        }
    }
    longhaul_testbed::skip::record(format!("{} on sockets: {}", part.0, missed.join("; ")));
}

/// Runs a part, and returns the checks that do not hold or are undecided because the machine was
/// busy.
fn missed_checks((name, part): &Part) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let words = words(part);
    let mut arguments = vec!["run", name, "--quick", "--out", out.to_str().unwrap()];
    arguments.extend(words.iter().map(String::as_str));
    let output = longhaul(&arguments);
    let messages = format!("{name}: {}{}", text(&output.stderr), text(&output.stdout));
    let result = check_result(name, &out, &messages);
    let missed: Vec<String> = result["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["pass"] != true)
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect();
    // 0: every check holds; 1: one does not; 4: one is undecided.
    let expected: &[i32] = if missed.is_empty() { &[0] } else { &[1, 4] };
    assert!(
        expected.contains(&output.status.code().unwrap()),
        "{messages}"
    );
    missed
}

#[test]
fn every_scenario_is_tested() {
    let listed = text(&longhaul(&["list"]).stdout);
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let groups = [NEC, ACKS_AND_RESERVOIR, SPLIT, JGN2, TODAY_AND_OWN].concat();
    let parts = groups.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, parts);
}

#[test]
fn nec_scenarios_run() {
    run(NEC);
}

#[test]
fn ack_and_reservoir_scenarios_run() {
    run(ACKS_AND_RESERVOIR);
}

#[test]
fn split_scenarios_run() {
    run(SPLIT);
}

#[test]
fn jgn2_scenarios_run() {
    run(JGN2);
}

#[test]
fn today_and_own_scenarios_run() {
    run(TODAY_AND_OWN);
}

/// Checks what a result must have regardless of its figures.
fn check_result(name: &str, out: &Path, messages: &str) -> Value {
    let result = fs::read(out.join("result.json")).expect(messages);
    let result: Value = serde_json::from_slice(&result).unwrap();
    let cells = result["cells"].as_array().unwrap();
    assert!(!cells.is_empty(), "{name}");
    for cell in cells {
        let runs = cell["runs"].as_array().unwrap();
        assert!(!runs.is_empty(), "{name}: {cell}");
        for run in runs {
            assert_eq!(run["failed"], Value::Null, "{name}: {messages}");
            assert_eq!(
                metrics(run),
                metrics(&cell["metrics"]),
                "{name}: runs of a cell differ in what they tell"
            );
        }
        assert!(
            metrics(&cell["metrics"])
                .iter()
                .any(|metric| metric == "goodput_bps" || metric.ends_with("received")),
            "{name}: {cell}"
        );
    }
    for file in result["raw"].as_array().unwrap() {
        assert!(out.join(file.as_str().unwrap()).exists(), "{name}: {file}");
    }
    assert!(
        !out.join("raw/.journal.jsonl").exists(),
        "{name}: the journal stays behind"
    );
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for view in ["tables", "figures"]
        .map(|key| result[key].as_array().cloned().unwrap_or_default())
        .concat()
    {
        let title = view["title"].as_str().unwrap();
        let escaped = title
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        assert!(
            page.contains(&escaped),
            "{name}: {title:?} is not on the page"
        );
    }
    result
}

/// Names of a run's metrics.
fn metrics(run: &Value) -> BTreeSet<String> {
    let all = run.as_object().unwrap().iter();
    // Absent without losses.
    let by_chance = |name: &str| name.contains("lost") || name.contains("loss_pattern");
    let figures = all.filter(|(name, value)| {
        !by_chance(name) && (value.is_number() || value.get("median").is_some())
    });
    figures.map(|(name, _)| name.clone()).collect()
}
