// SPDX-License-Identifier: MIT OR Apache-2.0
//! What refuses a scenario, before anything is touched. Every problem is one line that names its place.

mod claims;
mod flow;
mod known;
mod listening;
mod measures;
mod open;
mod paper;
pub(crate) mod program_limits;
mod scenario;
mod views;
