// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quick part of each built-in scenario, with real traffic wherever it takes seconds.
//!
//! Each test asserts what noise cannot change. Every run succeeded, so every byte arrived as sent: a wrong SHA-256 fails
//! a run. Every cell has every metric, and the page shows every table and figure. A simulated part must also pass the
//! scenario's checks, because it is the same each time. On sockets the machine's load decides the speed of a run, so
//! those checks are not judged here. `longhaul lab run` judges them.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

/// A test for each scenario, with the arguments that select the cells and parameters of its part.
macro_rules! scenarios {
    ($($(#[$attribute:meta])* $test:ident $name:literal $part:literal;)*) => {
        const SCENARIOS: &[&str] = &[$($name),*];
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                run($name, $part);
            }
        )*
    };
}

scenarios! {
    demo "demo" "--filter client=paper --filter loss=0.0 --set size=500MB";
    nec_dvd "nec-dvd" "--filter relays=false|true --set size=50MB";
    nec_clients "nec-clients" "--filter relays=true";
    nec_linux "nec-linux" "--filter direction=download --filter loss=0.001 --filter delay=2ms";
    nec_winxp "nec-winxp" "--filter direction=upload --filter loss=0.0 --filter delay=5ms";
    nec_aggregate "nec-aggregate" "--filter connections=4";
    nec_background "nec-background" "--filter access=0.5ms --filter relaying=cubic --filter mix=1+1";
    ack_ratio "ack-ratio" "--filter n=1";
    ack_pacing "ack-pacing" "--filter paced=true";
    reservoir_nic "reservoir-nic" "--filter queue=100p --filter interface=slow --set duration=5s";
    reservoir_ipg "reservoir-ipg" "--filter gap=512 --set duration=5s --set omit=2s";
    reservoir_spacing "reservoir-spacing" "--filter control=lh_trc --set duration=5s";
    reservoir_24000km "reservoir-24000km" "--filter streams=16 --filter way=DECP --set duration=10s";
    #[ignore = "needs dante: make test-peers"]
    split_position "split-position" "--filter place=25-25 --set size=5MB";
    #[ignore = "needs Squid and HAProxy: make test-peers"]
    split_count "split-count" "--filter n=3 --filter way=SOCKS|Squid|HAProxy --set size=5MB";
    #[ignore = "needs Squid: make test-peers"]
    split_internet "split-internet" "--filter by=Kagoshima|none";
    first_recipe "first-recipe" "--filter hosts=default";
    #[ignore = "needs Squid: make test-peers"]
    split_osaka "split-osaka" "--filter by=Fukuoka --filter size=8MiB";
    jgn2_single "jgn2-single" "--simulate --filter control=reno|bic|htcp";
    jgn2_rtt_fairness "jgn2-rtt-fairness" "--filter control=fast --filter rtt_ratio=2";
    jgn2_delay_switch "jgn2-delay-switch" "--simulate --filter control=fast";
    jgn2_rate_switch "jgn2-rate-switch" "--simulate --filter control=bic";
    jgn2_coexistence "jgn2-coexistence" "--filter first=bic --filter second=htcp|udt|bbr";
    simulate "simulate" "--set duration=2s";
    today "today" "--filter hosts=tuned --filter loss=0.001 --filter choice=cubic|relays+bbr";
    today_fast "today-fast" "--filter rate=10gbit --filter loss=0.0001";
    relay_objects "relay-objects" "--filter size=10KB --filter access=1ms --filter way=direct|longhaul";
    relay_efficiency "relay-efficiency" "--filter direction=upload --filter loss=0.001 --filter delay=1ms";
    striping "striping" "--filter streams=4 --filter direction=download --set duration=4s";
    copy_limit "copy-limit" "--filter rtt=20ms --set size=100MB";
    link_long_fat "link-long-fat" "--filter rate=1gbit --set duration=4s";
    link_proofs "link-proofs" "--filter proof=delay";
    link_beside_veth "link-beside-veth" "--repetitions 1";
    whole_path "whole-path" "";
}

/// Whether the test may create namespaces. Without root it is skipped with ALLOW_SKIP=1, else it
/// fails.
fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(
        rustix::process::geteuid().is_root(),
        "root (CAP_SYS_ADMIN)",
    )
}

fn longhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
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

/// Runs a part of the scenario `name`. Its checks must hold if it is simulated.
fn run(name: &str, part: &str) {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let words = words(part);
    let mut arguments = vec!["run", name, "--quick", "--out", out.to_str().unwrap()];
    arguments.extend(words.iter().map(String::as_str));
    let output = longhaul(&arguments);
    let messages = format!("{name}: {}{}", text(&output.stderr), text(&output.stdout));
    let result = check_result(name, &out, &messages);
    let checks = result["checks"].as_array().unwrap();
    let all_pass = checks.iter().all(|check| check["pass"] == true);
    // 0: every check holds; 1: one does not; 4: one is undecided.
    let expected: &[i32] = if all_pass { &[0] } else { &[1, 4] };
    assert!(
        expected.contains(&output.status.code().unwrap()),
        "{messages}"
    );
    assert!(all_pass || !part.contains("--simulate"), "{messages}");
}

#[test]
fn every_scenario_is_tested() {
    let listed = text(&longhaul(&["list"]).stdout);
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, SCENARIOS.iter().copied().collect());
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
