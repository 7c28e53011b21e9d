// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets of this crate, run over their committed corpora.

#[path = "../../../../fuzz/invariants/decode.rs"]
mod decode;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn decodes_truncated_frames_without_panic() {
    replay("decode", decode::check);
}
