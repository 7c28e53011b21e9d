// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate's parsers, over their committed corpora.

use crate::{copy::message, lab::expression, site::xml};

#[path = "../../../fuzz/invariants/expression.rs"]
mod expressions;
#[path = "../../../fuzz/invariants/message.rs"]
mod messages;
#[path = "../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../fuzz/invariants/request_xml.rs"]
mod request_xml;

#[test]
fn expressions_are_no_larger_than_their_text() {
    replay::replay("expression", expressions::check);
}

#[test]
fn messages_of_a_copy_are_read_to_their_last_byte() {
    replay::replay("message", messages::check);
}

#[test]
fn xml_of_requests_becomes_a_small_tree() {
    replay::replay("request_xml", request_xml::check);
}
