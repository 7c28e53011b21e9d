// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where tests load: names of congestion controls are the machine's.

use crate::feature_probe;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// A directory for pins and the right to use the machine's names alone; none without root of
/// the machine, which a user namespace's is not.
pub(super) fn test_guard() -> Option<(File, tempfile::TempDir)> {
    let root = !longhaul_testbed::skip::is_confined() && feature_probe::check_rights("").is_ok();
    if !longhaul_testbed::skip::unless_confined(root, "eBPF, which takes root of the machine") {
        return None;
    }
    let turn = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    Some((turn, tempfile::tempdir().unwrap()))
}
