// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a scenario before any run. Every problem is one line with the position in the file.

mod available_metrics;
mod claims;
mod flow;
mod listening;
mod measures;
mod open;
pub(crate) mod program_limits;
mod reference_values;
mod scenario;
mod views;
