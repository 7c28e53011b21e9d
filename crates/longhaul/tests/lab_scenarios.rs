// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quick part of the built-in scenarios on real traffic. Asserted is only what noise can't change: every run
//! succeeded (so every byte arrived as it was sent: a wrong SHA-256 is a failed run), every cell has every metric,
//! and the page shows every table and figure.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Scenario, and which of it: a minute or two in all. Needs what `make test` installs.
const PARTS: [(&str, &[&str]); 3] = [
    (
        "nec-dvd",
        &["--only", "relays=false|true", "--set", "size=50MB"],
    ),
    (
        "relay-objects",
        &[
            "--repetitions",
            "1",
            "--only",
            "size=10KB",
            "--only",
            "access=1ms",
            "--only",
            "way=direct|longhaul",
        ],
    ),
    ("link-beside-veth", &["--repetitions", "1"]),
];

/// Root, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
fn may_use_namespaces() -> bool {
    let root = rustix::process::geteuid().is_root();
    let allowed = std::env::var("ALLOW_SKIP").is_ok_and(|value| value == "1");
    assert!(
        root || allowed,
        "needs root (CAP_SYS_ADMIN); ALLOW_SKIP=1 skips this test"
    );
    root
}

fn longhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("lab").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn quick_parts_run_and_give_every_metric() {
    if !may_use_namespaces() {
        return;
    }
    for (name, part) in PARTS {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let arguments = ["run", name, "--quick", "--out", out.to_str().unwrap()];
        let output = longhaul(&[&arguments, part].concat());
        let said = text(&output.stderr);
        // 1 may be a check that is not met: a short run on a busy machine proves nothing about speed.
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{name}: {said}"
        );
        sound(name, &out, &said);
    }
}

fn sound(name: &str, out: &Path, said: &str) {
    let result: Value =
        serde_json::from_slice(&fs::read(out.join("result.json")).unwrap()).unwrap();
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
