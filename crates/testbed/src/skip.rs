// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: what a machine lacks fails a test or, where that is allowed, skips it so that it is counted.
//!
//! libtest knows no test that finds out by itself that it can't run: it returns early and counts as passed. Such a
//! test is noted here, and `scripts/test` takes it off the passed ones.

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{Write, stderr},
    process, thread,
};

/// Where skipped tests are noted, a line each: program and process, test, reason, with tabs between. Absent: on
/// standard error, past libtest's capture.
const NOTES: &str = "SKIPPED_TESTS";

/// Whether a test may go on: `there` is whether this machine has what it needs.
///
/// # Panics
/// If it is not there and the environment does not say `ALLOW_SKIP=1`.
#[must_use]
pub fn unless(there: bool, needed: impl Display) -> bool {
    if !there {
        assert!(allowed(), "needs {needed}; ALLOW_SKIP=1 skips this test");
        because(format!("needs {needed}"));
    }
    there
}

/// As [`unless`], for what takes root of the machine, as eBPF does. In a user namespace nobody has it, so there a
/// test is skipped whether that is allowed or not.
///
/// # Panics
/// As [`unless`], outside of user namespaces.
#[must_use]
pub fn unless_confined(there: bool, needed: impl Display) -> bool {
    if there || !is_confined() {
        return unless(there, needed);
    }
    because(format!("no user namespace has {needed}"));
    false
}

/// Whether this is a user namespace other than the machine's.
#[must_use]
pub fn is_confined() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !users.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Notes that the calling test is skipped, for a reason that nobody need mend.
pub fn because(reason: impl Display) {
    let program = env::args().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let current = thread::current();
    let test = current.name().unwrap_or("?");
    let reason = reason.to_string().replace(['\t', '\n'], " ");
    let line = format!("{program} {}\t{test}\t{reason}\n", process::id());
    let noted = env::var_os(NOTES).is_some_and(|notes| {
        let file = OpenOptions::new().append(true).create(true).open(notes);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .is_ok()
    });
    if !noted {
        // Nobody reads it: the test is skipped all the same.
        let _ = stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
    }
}

fn allowed() -> bool {
    env::var_os("ALLOW_SKIP").is_some_and(|value| value == "1")
}
