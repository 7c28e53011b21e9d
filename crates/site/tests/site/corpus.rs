// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz target of this crate, over its committed corpus.

#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/request_xml.rs"]
mod request_xml;

#[test]
fn xml_of_requests_becomes_a_small_tree() {
    replay::replay("request_xml", request_xml::check);
}
