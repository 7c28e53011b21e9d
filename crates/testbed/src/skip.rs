// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skipping of tests: a missing requirement fails a test or, if that is allowed, skips and counts it.
//!
//! libtest does not support tests that skip themselves at run time: they return early and count as passed. Such a
//! test is recorded here, and `scripts/test` subtracts it from the passed ones.

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{Write, stderr},
    process, thread,
};

/// Environment variable with the file of skipped tests. Each line has program and process, test, and reason, separated
/// by tabs. If the variable is absent, they go to standard error, past libtest's capture.
const SKIP_FILE: &str = "SKIPPED_TESTS";

/// Whether a test may continue: `is_available` says whether this machine has the requirement `needed`.
///
/// # Panics
/// If the requirement is missing and the environment does not have `ALLOW_SKIP=1`.
#[must_use]
pub fn unless(is_available: bool, needed: impl Display) -> bool {
    if !is_available {
        assert!(may_skip(), "needs {needed}; ALLOW_SKIP=1 skips this test");
        because(format!("needs {needed}"));
    }
    is_available
}

/// Checks a requirement as [`unless`] does, but one that needs root of the machine, such as eBPF. A user namespace
/// never has it, so there a test is skipped whether that is allowed or not.
///
/// # Panics
/// As [`unless`], outside of user namespaces.
#[must_use]
pub fn unless_confined(is_available: bool, needed: impl Display) -> bool {
    if is_available || !is_confined() {
        return unless(is_available, needed);
    }
    because(format!("no user namespace has {needed}"));
    false
}

/// Whether this process is in a user namespace other than the machine's.
#[must_use]
pub fn is_confined() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !users.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Records that the calling test is skipped for this reason.
pub fn because(reason: impl Display) {
    let program = env::args().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let current = thread::current();
    let test = current.name().unwrap_or("?");
    let reason = reason.to_string().replace(['\t', '\n'], " ");
    let line = format!("{program} {}\t{test}\t{reason}\n", process::id());
    let recorded = env::var_os(SKIP_FILE).is_some_and(|path| {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .is_ok()
    });
    if !recorded {
        // Standard error may be closed. The test is skipped nevertheless.
        let _ = stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
    }
}

fn may_skip() -> bool {
    env::var_os("ALLOW_SKIP").is_some_and(|value| value == "1")
}
