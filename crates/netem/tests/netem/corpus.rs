// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay of the committed corpora of this crate's fuzz targets.

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
fn cuts_and_joins_super_packets() {
    replay("super_packet", super_packet::check);
}

#[test]
fn parses_traces_and_their_own_text() {
    replay("trace", trace::check);
}

#[test]
fn accounts_for_every_segment_under_any_settings() {
    replay("setting", setting::check);
}
