// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: HTML pages of one file that open offline, charts in them, metrics with their units, tables in plain text.
//!
//! Pages: [`page`] is a page, [`chart`] a chart over a number, and [`table`] a table. [`scale`] rounds the steps of bins.
//!
//! Metrics: [`registry`] lists the built-in metrics of runs. [`metric`] derives label and unit from a metric's name,
//! [`mod@unit`] formats values. [`columns`] has tables for a terminal, [`count`] counts with their nouns.
//!
//! ```
//! use longhaul_report::{columns::align, metric::Metric, page::Page};
//!
//! let goodput = Metric::of("goodput_bps");
//! let rows = [["path".to_owned(), "goodput".to_owned()], ["Tokyo".to_owned(), goodput.format(94e6)]];
//! assert_eq!(align(&rows.map(Vec::from))[1], "Tokyo   94 Mbit/s");
//! assert!(Page { title: "Paths", ..Page::default() }.html().contains("<title>Paths"));
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod chart;
pub mod columns;
pub mod count;
pub mod metric;
pub mod page;
pub mod registry;
pub mod scale;
pub mod table;
pub mod unit;
