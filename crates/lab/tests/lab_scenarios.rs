// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quick part of each built-in scenario, real traffic wherever it takes seconds. Asserted each time is what noise
//! can't change: every run succeeded (so every byte arrived as it was sent: a wrong SHA-256 is a failed run), every
//! cell has every metric, and the page shows every table and figure. The scenario's checks must hold, too: what is
//! simulated is the same each time; on sockets a part is run again where one does not hold, and where the machine is
//! too busy to decide one, the test counts as skipped. What may be missed is named (`OF_SPEED`).

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Which cells of a scenario, and with what: words of its command line.
type Part = (&'static str, &'static str);

/// The groups run beside each other. Needs what `make test` installs.
const NEC: &[Part] = &[
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
    ("ack-pacing", "--only paced=true"),
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
    ("link-long-fat", "--only rate=1gbit --set duration=4s"),
    ("link-proofs", "--only proof=delay"),
    ("link-beside-veth", "--repetitions 1"),
    ("whole-path", ""),
];

/// Root, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::unless(rustix::process::geteuid().is_root(), "root (CAP_SYS_ADMIN)")
}

fn longhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testbed::longhaul());
    command.arg("lab").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The words of a part; a plus stands for one between spaces, as in the names of some choices.
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
        // What is simulated is the same each time.
        let tries = if part.1.contains("--simulate") {
            1
        } else {
            TRIES
        };
        let missed: Vec<String> = (0..tries).map_while(|_| missed(part)).collect();
        assert!(missed.len() < tries, "{}", missed.concat());
    }
}

/// A short run may be slowed down by something that the emulator does not notice; three times is no accident.
const TRIES: usize = 3;

/// Checks of how fast this build is on this machine: one that is not optimised, beside other tests, proves nothing.
const OF_SPEED: &[(&str, &str)] = &[("link-beside-veth", "at least level with plain veth")];

fn is_of_speed(scenario: &str, check: &Value) -> bool {
    OF_SPEED
        .iter()
        .any(|(name, of)| *name == scenario && check["name"] == *of)
}

/// Runs a part; what it said if a check does not hold.
fn missed((name, part): &Part) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let words = words(part);
    let mut arguments = vec!["run", name, "--quick", "--out", out.to_str().unwrap()];
    arguments.extend(words.iter().map(String::as_str));
    let output = longhaul(&arguments);
    let said = format!("{name}: {}{}", text(&output.stderr), text(&output.stdout));
    let result = sound(name, &out, &said);
    let checks = result["checks"].as_array().unwrap();
    let open = checks.iter().any(|check| check["undecided"].is_string());
    let broken = |check: &&Value| check["pass"] == false && check["undecided"].is_null();
    let mut broken = checks.iter().filter(broken).peekable();
    let code = output.status.code();
    if broken.peek().is_some() && broken.all(|check| is_of_speed(name, check)) {
        assert_eq!(code, Some(1), "{said}");
        return None;
    }
    match code {
        Some(0) => None,
        Some(1) => Some(said),
        Some(4) if open => {
            longhaul_testbed::skip::because(format!(
                "the machine was too busy for {name}'s checks"
            ));
            None
        }
        _ => panic!("{said}"),
    }
}

#[test]
fn every_scenario_has_its_part() {
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
fn relays_on_a_long_line() {
    run(NEC);
}

#[test]
fn the_ack_stream_and_the_data_reservoir() {
    run(ACKS_AND_RESERVOIR);
}

#[test]
fn divided_paths() {
    run(SPLIT);
}

#[test]
fn congestion_controls_on_jgn_2() {
    run(JGN2);
}

#[test]
fn choices_of_today_and_our_own_questions() {
    run(TODAY_AND_OWN);
}

/// What a result must have whatever was measured.
fn sound(name: &str, out: &Path, said: &str) -> Value {
    let result = fs::read(out.join("result.json")).expect(said);
    let result: Value = serde_json::from_slice(&result).unwrap();
    let cells = result["cells"].as_array().unwrap();
    assert!(!cells.is_empty(), "{name}");
    for cell in cells {
        let runs = cell["runs"].as_array().unwrap();
        assert!(!runs.is_empty(), "{name}: {cell}");
        for run in runs {
            assert_eq!(run["failed"], Value::Null, "{name}: {said}");
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

/// The names of a run's figures.
fn metrics(run: &Value) -> BTreeSet<String> {
    let all = run.as_object().unwrap().iter();
    // Absent where nothing was lost.
    let by_chance = |name: &str| name.contains("lost") || name.contains("loss_pattern");
    let figures = all.filter(|(name, value)| {
        !by_chance(name) && (value.is_number() || value.get("median").is_some())
    });
    figures.map(|(name, _)| name.clone()).collect()
}
