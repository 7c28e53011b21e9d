// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of experiments: the record that `longhaul lab run` writes ([`result`]), its comparison with another
//! ([`compare`]), its table for a terminal ([`table`]) and its page ([`report`]).
//!
//! ```
//! use longhaul_results::summary::Summary;
//!
//! let summary = Summary::of([3.0, 1.0, 2.0]).unwrap();
//! assert_eq!(summary.median, 2.0);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod compare;
pub mod identity;
pub mod report;
pub mod result;
mod series;
mod setting;
pub mod summary;
pub mod table;
pub mod view;
