// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of this crate, run over its committed corpus.

#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/request_xml.rs"]
mod request_xml;

#[test]
fn corpus_xml_becomes_a_small_tree() {
    replay::replay("request_xml", request_xml::check);
}
