// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay of this crate's fuzz corpora.

#[path = "../../../../fuzz/invariants/expression.rs"]
mod expression;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn expressions_are_no_larger_than_their_text() {
    replay("expression", expression::check);
}
