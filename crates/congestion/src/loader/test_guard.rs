// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guard for tests that load: names of congestion controls are shared by the machine.

use crate::feature_probe;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// Returns a directory for pins and a lock of the machine's names. `None` without root of the machine,
/// as in a user namespace.
pub(super) fn test_guard() -> Option<(File, tempfile::TempDir)> {
    let root = !longhaul_testprograms::skip::is_in_user_namespace()
        && feature_probe::check_rights("").is_ok();
    if !longhaul_testprograms::skip::require_privileged(
        root,
        "eBPF, which takes root of the machine",
    ) {
        return None;
    }
    let lock = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    Some((lock, tempfile::tempdir().unwrap()))
}
