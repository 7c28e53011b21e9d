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

/// Checks a requirement of the calling test, and returns whether the test may continue. `is_available` says whether
/// this machine has what is `needed`. If not, the test is recorded as skipped, and must return.
///
/// # Panics
/// If the requirement is missing and the environment does not have `ALLOW_SKIP=1`.
#[must_use]
pub fn require(is_available: bool, needed: impl Display) -> bool {
    if !is_available {
        assert!(may_skip(), "needs {needed}; ALLOW_SKIP=1 skips this test");
        record(format!("needs {needed}"));
    }
    is_available
}

/// Checks a requirement that only root of the machine has, such as eBPF. Root of a user namespace never has it, so
/// there the test is skipped even without `ALLOW_SKIP=1`. Elsewhere this is [`require`].
///
/// # Panics
/// As [`require`], outside of user namespaces.
#[must_use]
pub fn require_privileged(is_available: bool, needed: impl Display) -> bool {
    if is_available || !is_in_user_namespace() {
        return require(is_available, needed);
    }
    record(format!("no user namespace has {needed}"));
    false
}

/// Whether this process may load eBPF programs, as only root of the machine may. If not, the test is skipped or fails as
/// in [`require_privileged`].
#[must_use]
pub fn may_load_bpf() -> bool {
    let is_root = rustix::process::geteuid().is_root() && !is_in_user_namespace();
    require_privileged(is_root, "eBPF, which takes root of the machine")
}

/// Checks that the calling test runs as root of the machine. If not, it fails, or is skipped with ALLOW_SKIP=1.
#[must_use]
pub fn require_root_of_the_machine() -> bool {
    require(!is_in_user_namespace(), "root of the machine")
}

/// Whether this process is in a user namespace other than the machine's.
#[must_use]
pub fn is_in_user_namespace() -> bool {
    let uid_map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Records that the calling test is skipped, with the reason.
pub fn record(reason: impl Display) {
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
