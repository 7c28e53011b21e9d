// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integration tests of `longhaul lab` with real sockets, files and processes, and the committed corpora of its fuzz targets.

#[path = "../../../../fuzz/invariants/expression.rs"]
mod expression;
mod lab_batch;
mod lab_commands;
mod lab_flows;
mod lab_relays;
mod lab_sandbox;
mod lab_simulated;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn expressions_are_no_larger_than_their_text() {
    replay("expression", expression::check);
}
