// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of this crate's parsers, over their committed corpora.

use crate::lab::expression;

#[path = "../../../fuzz/invariants/expression.rs"]
mod expressions;
#[path = "../../../fuzz/invariants/replay.rs"]
mod replay;

#[test]
fn expressions_are_no_larger_than_their_text() {
    replay::replay("expression", expressions::check);
}
