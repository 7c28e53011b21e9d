// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of `wire` and `model`, over their committed corpora.

#[path = "../../../fuzz/invariants/block.rs"]
mod block;
#[path = "../../../fuzz/invariants/capture.rs"]
mod capture;
#[path = "../../../fuzz/invariants/convert.rs"]
mod convert;
#[path = "../../../fuzz/invariants/decode.rs"]
mod decode;
#[path = "../../../fuzz/invariants/packet_filter.rs"]
mod packet_filter;
#[path = "../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../fuzz/invariants/setting.rs"]
mod setting;
#[path = "../../../fuzz/invariants/socks5.rs"]
mod socks5;
#[path = "../../../fuzz/invariants/stripe.rs"]
mod stripe;
#[path = "../../../fuzz/invariants/super_packet.rs"]
mod super_packet;
#[path = "../../../fuzz/invariants/trace.rs"]
mod trace;

use replay::replay;

#[test]
fn super_packets_are_cut_and_joined() {
    replay("super_packet", super_packet::check);
}

#[test]
fn headers_of_blocks_read_back() {
    replay("block", block::check);
}

#[test]
fn socks5_messages_end_where_they_say() {
    replay("socks5", socks5::check);
}

#[test]
fn convert_messages_read_back() {
    replay("convert", convert::check);
}

#[test]
fn traces_read_back() {
    replay("trace", trace::check);
}

#[test]
fn settings_make_lines_that_account_for_everything() {
    replay("setting", setting::check);
}

#[test]
fn striped_streams_come_out_in_order_or_not_at_all() {
    replay("stripe", stripe::check);
}

#[test]
fn filters_of_captures_end_and_keep_what_they_should() {
    replay("packet_filter", packet_filter::check);
}

#[test]
fn capture_files_are_read_to_their_last_byte() {
    replay("pcap", capture::check);
    replay("pcapng", capture::check);
}

#[test]
fn frames_are_decoded_whatever_was_cut_off() {
    replay("decode", decode::check);
}
