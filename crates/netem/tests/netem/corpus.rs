// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate, over their committed corpora.

#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/setting.rs"]
mod setting;
#[path = "../../../../fuzz/invariants/super_packet.rs"]
mod super_packet;
#[path = "../../../../fuzz/invariants/trace.rs"]
mod trace;

use replay::replay;

#[test]
fn super_packets_are_cut_and_joined() {
    replay("super_packet", super_packet::check);
}

#[test]
fn traces_read_back() {
    replay("trace", trace::check);
}

#[test]
fn settings_make_lines_that_account_for_everything() {
    replay("setting", setting::check);
}
