// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a scenario before any run. Every problem is one line with the position in the file.

pub(crate) mod available_metrics;
pub(crate) mod claims;
mod flow;
pub(crate) mod keys;
mod listening;
pub(crate) mod measures;
pub(crate) mod program_limits;
pub(crate) mod scenario;
pub(crate) mod views;
