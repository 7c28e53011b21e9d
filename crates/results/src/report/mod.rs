// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of results: HTML files that need no network.
//!
//! A page has the headline, then figures, tables, the method of measurement and raw data. maud escapes every text that
//! comes from the scenario.

#[cfg(test)]
mod browser_tests;
mod csv;
mod document;
mod downloads;
pub mod experiment;
mod figure;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod headline;
mod index;
mod method;
mod over_time;
mod tables;
mod topology;
mod topology_layout;
mod values;

pub use document::rebuild;
pub use index::{GENERATOR_MARK, pages};
