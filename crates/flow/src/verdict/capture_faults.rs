// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caveats of a verdict on a capture that lacks packets, or whose clock was set.

use crate::record::Data;

/// Least share of acknowledged bytes that the capture lacks if the verdict says so.
pub const MISSING_SHARE_MIN: f64 = 0.01;

/// Returns the caveat on data that the capture lacks.
pub(super) fn missing_caveat(data: &Data) -> String {
    match data.acked_unseen_share() {
        share if share > MISSING_SHARE_MIN => format!(
            " The capture lacks {:.0} % of the data, which was acknowledged: its rates, bursts and losses are uncertain.",
            share * 100.0
        ),
        _ => String::new(),
    }
}

/// Adds the caveat on a clock that was set back; a direction without data has no verdict.
pub(super) fn add_clock_caveat(verdict: &mut String) {
    if !verdict.is_empty() {
        verdict.push_str(
            " The capture's clock was set back meanwhile, so the order and the rates of that time are wrong.",
        );
    }
}
