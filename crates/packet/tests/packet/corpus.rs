// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate, over their committed corpora.

#[path = "../../../../fuzz/invariants/capture.rs"]
mod capture;
#[path = "../../../../fuzz/invariants/packet_filter.rs"]
mod packet_filter;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn filters_of_captures_end_and_keep_what_they_should() {
    replay("packet_filter", packet_filter::check);
}

#[test]
fn capture_files_are_read_to_their_last_byte() {
    replay("pcap", capture::check);
    replay("pcapng", capture::check);
}
