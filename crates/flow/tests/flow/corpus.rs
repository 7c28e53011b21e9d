// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets of this crate, run over their committed corpora.

#[path = "../../../../fuzz/invariants/flows.rs"]
mod flows;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn records_of_any_segments_agree() {
    replay("flows", flows::check);
}
