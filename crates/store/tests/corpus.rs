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
fn sealed_records_are_believed_and_no_others() {
    replay("journal", journal::check);
}

#[test]
fn whole_lines_of_a_manifest_count_and_no_others() {
    replay("manifest", manifest::check);
}

#[test]
fn paths_stay_below() {
    replay("path", path::check);
}
