// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of the runs over time, drawn by `chart.js`.

pub(super) mod captured_rates;
pub(super) mod events;
pub(super) mod goodput;
pub(super) mod legs;
