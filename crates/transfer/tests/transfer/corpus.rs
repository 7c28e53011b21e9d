// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate, over their committed corpora.

#[path = "../../../../fuzz/invariants/block.rs"]
mod block;
#[path = "../../../../fuzz/invariants/message.rs"]
mod message;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn headers_of_blocks_read_back() {
    replay("block", block::check);
}

#[test]
fn messages_of_a_copy_are_read_to_their_last_byte() {
    replay("message", message::check);
}
