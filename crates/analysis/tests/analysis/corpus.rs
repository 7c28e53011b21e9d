// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate, over their committed corpora.

#[path = "../../../../fuzz/invariants/decode.rs"]
mod decode;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn frames_are_decoded_whatever_was_cut_off() {
    replay("decode", decode::check);
}
