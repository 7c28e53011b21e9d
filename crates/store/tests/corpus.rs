// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets of this crate, run over their committed corpora.

#[path = "../../../fuzz/invariants/damage.rs"]
mod damage;
#[path = "../../../fuzz/invariants/journal.rs"]
mod journal;
#[path = "../../../fuzz/invariants/manifest.rs"]
mod manifest;
#[path = "../../../fuzz/invariants/memory.rs"]
mod memory;
#[path = "../../../fuzz/invariants/path.rs"]
mod path;
#[path = "../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn reads_only_sealed_records() {
    replay("journal", journal::check);
}

#[test]
fn reads_only_whole_manifest_lines() {
    replay("manifest", manifest::check);
}

#[test]
fn accepted_paths_stay_below_the_top() {
    replay("path", path::check);
}
