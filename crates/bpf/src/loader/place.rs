// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where tests load: names of congestion controls are the machine's.

use crate::kernel;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};

/// A directory for pins and the right to use the machine's names alone; none without root of
/// the machine, which a user namespace's is not.
pub(super) fn place() -> Option<(File, tempfile::TempDir)> {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap();
    let everyone = users.split_whitespace().eq(["0", "0", "4294967295"]);
    if !everyone || kernel::rights("").is_err() {
        let allowed = std::env::var_os("ALLOW_SKIP").is_some_and(|v| v == "1");
        assert!(!everyone || allowed, "needs root; ALLOW_SKIP=1 skips");
        eprintln!("skipped: eBPF needs root of the machine");
        return None;
    }
    let turn = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    Some((turn, tempfile::tempdir().unwrap()))
}
