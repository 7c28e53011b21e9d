// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays of the committed corpora through the fuzz targets of this crate.

#[path = "../../../../fuzz/invariants/capture.rs"]
mod capture;
#[path = "../../../../fuzz/invariants/packet_filter.rs"]
mod packet_filter;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn packet_filters_limit_the_snaplen() {
    replay("packet_filter", packet_filter::check);
}

#[test]
fn reads_capture_files_to_the_last_byte() {
    replay("pcap", capture::check);
    replay("pcapng", capture::check);
}
