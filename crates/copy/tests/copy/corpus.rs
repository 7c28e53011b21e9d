// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets of this crate, run over their committed corpora.

#[path = "../../../../fuzz/invariants/block.rs"]
mod block;
#[path = "../../../../fuzz/invariants/message.rs"]
mod message;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn block_headers_round_trip() {
    replay("block", block::check);
}

#[test]
fn messages_round_trip() {
    replay("message", message::check);
}
