// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: HTML pages of one file that open offline, charts in them, metrics with their units, tables in plain text.
//!
//! [`page`] is a page, [`figure`] what its figures have in common, [`lines`] a line chart with its table, [`table`] a
//! table, [`scale`] the ticks of an axis, [`mod@unit`] the units of metrics, [`registry`] the metrics that runs have by
//! themselves, [`metric`] what any metric's name says, [`columns`] tables for a terminal, [`count`] counts in words.
//!
//! ```
//! use longhaul_report::{columns::aligned, metric::Metric, page::Page};
//!
//! let goodput = Metric::of("goodput_bps");
//! let rows = [["path".to_owned(), "goodput".to_owned()], ["Tokyo".to_owned(), goodput.print(94e6)]];
//! assert_eq!(aligned(&rows.map(Vec::from))[1], "Tokyo   94 Mbit/s");
//! assert!(Page { title: "Paths", ..Page::default() }.html().contains("<title>Paths"));
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod columns;
pub mod count;
pub mod figure;
pub mod lines;
pub mod metric;
pub mod page;
pub mod registry;
pub mod scale;
pub mod table;
pub mod unit;
