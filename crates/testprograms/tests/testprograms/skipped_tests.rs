// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that skip themselves are counted as skipped, not as passed.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Test in this file whose requirement is missing.
const SKIPPING_TEST: &str = "skipped_tests::requires_a_missing_program";

#[test]
fn requires_a_missing_program() {
    if std::env::var_os("REQUIRE_MISSING_PROGRAM").is_some()
        && longhaul_testprograms::skip::require(false, "no-such-program")
    {
        panic!("the test ran");
    }
}

/// Runs that test as `cargo test` does. `allow_skip` is the value of ALLOW_SKIP.
fn run_skipping_test(allow_skip: &str, skip_file: &Path) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", SKIPPING_TEST])
        .env("REQUIRE_MISSING_PROGRAM", "1")
        .env("ALLOW_SKIP", allow_skip)
        .env("SKIPPED_TESTS", skip_file)
        .output()
        .unwrap()
}

/// Runs `scripts/test-summary` on a log. Returns its last line, and whether it succeeded.
fn summary(log: &str, skip_file: &Path) -> (String, bool) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    fs::write(&file, log).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-summary");
    let output = Command::new(script)
        .arg(file)
        .arg(skip_file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap_or_default().to_owned();
    (last, output.status.success())
}

#[test]
fn missing_requirement_fails_or_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let skip_file = directory.path().join("skip_file");
    let failed = run_skipping_test("0", &skip_file);
    assert!(!failed.status.success());
    let output = String::from_utf8(failed.stdout).unwrap();
    assert!(
        output.contains("needs no-such-program; ALLOW_SKIP=1"),
        "{output}"
    );
    assert!(!skip_file.exists());

    let skipped = run_skipping_test("1", &skip_file);
    assert!(skipped.status.success());
    let recorded = fs::read_to_string(&skip_file).unwrap();
    let fields: Vec<&str> = recorded.trim_end().split('\t').collect();
    assert_eq!(fields[2], "needs no-such-program", "{recorded}");

    let log = String::from_utf8(skipped.stdout).unwrap();
    let (line, succeeded) = summary(&log, &skip_file);
    assert_eq!(
        (line.as_str(), succeeded),
        ("0 passed, 0 failed, 1 skipped", true)
    );
}

#[test]
fn summary_adds_up_all_programs() {
    let directory = tempfile::tempdir().unwrap();
    let skip_file = directory.path().join("skip_file");
    let log = "running 3 tests\n\
               test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
               running 4 tests\n\
               test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n";
    let (line, succeeded) = summary(log, &skip_file);
    assert_eq!(
        (line.as_str(), succeeded),
        ("5 passed, 1 failed, 1 skipped", true)
    );
    // A test that is listed twice counts once. Tests whose thread has no name of its own (`main`) count each time.
    let lines = "a 7\tone\tneeds root\na 7\tone\tneeds a browser\nb 8\tone\tneeds root\n\
                 c 9\tmain\tneeds root\nc 9\tmain\tneeds root\n";
    fs::write(&skip_file, lines).unwrap();
    let (line, _) = summary(log, &skip_file);
    assert_eq!(line, "1 passed, 1 failed, 5 skipped");
    // A test program that crashed.
    let (line, succeeded) = summary("running 3 tests\n", &directory.path().join("none"));
    assert!(
        line.starts_with("3 tests ended without a result, ") && !succeeded,
        "{line}"
    );
}
