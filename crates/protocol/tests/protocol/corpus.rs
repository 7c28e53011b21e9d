// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate, over their committed corpora.

#[path = "../../../../fuzz/invariants/convert.rs"]
mod convert;
#[path = "../../../../fuzz/invariants/ftp.rs"]
mod ftp;
#[path = "../../../../fuzz/invariants/http_head.rs"]
mod http_head;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/socks5.rs"]
mod socks5;
#[path = "../../../../fuzz/invariants/stripe.rs"]
mod stripe;

use replay::replay;

#[test]
fn socks5_messages_end_where_they_say() {
    replay("socks5", socks5::check);
}

#[test]
fn convert_messages_read_back() {
    replay("convert", convert::check);
}

#[test]
fn striped_streams_come_out_in_order_or_not_at_all() {
    replay("stripe", stripe::check);
}

#[test]
fn requests_carry_on_what_is_meant_for_the_origin() {
    replay("http_head", http_head::check);
}

#[test]
fn ftp_replies_end_where_they_say() {
    replay("ftp", ftp::check);
}
