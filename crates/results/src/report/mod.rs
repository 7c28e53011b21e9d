// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of results: HTML files that need no network.
//!
//! The answer comes first, then the picture that proves it, the table, how it was measured, and
//! the raw data. maud escapes every text that comes from the scenario.

pub(crate) mod answer;
mod csv;
mod document;
mod downloads;
pub mod experiment;
mod figure;
#[cfg(test)]
mod in_browser;
mod index;
mod layout;
#[cfg(test)]
pub(crate) mod made_up;
mod method;
mod over_time;
mod tables;
mod testbed;
mod values;

pub use document::rebuild;
pub use index::{OURS, pages};
