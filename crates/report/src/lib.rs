// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: HTML pages of one file that open offline, charts in them, metrics with their units, tables in plain text.
//!
//! [`page`] has the parts of a page, [`lines`] a line chart with its table, [`scale`] the ticks of an axis, [`unit`]
//! the units of metrics, [`registry`] the metrics that runs have by themselves, [`metric`] what any metric's name says,
//! [`columns`] the tables for a terminal, [`count`] counts in words.
//!
//! ```
//! use longhaul_report::{columns::aligned, metric::Metric, page};
//!
//! let goodput = Metric::of("goodput_bps");
//! let rows = [["path".to_owned(), "goodput".to_owned()], ["Tokyo".to_owned(), goodput.print(94e6)]];
//! assert_eq!(aligned(&rows.map(Vec::from))[1].trim_end(), "Tokyo   94 Mbit/s");
//! assert!(page::head("Paths", "0.1.0", "").into_string().contains("<title>Paths"));
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod columns;
pub mod count;
pub mod lines;
pub mod metric;
pub mod page;
pub mod registry;
pub mod scale;
pub mod unit;
