// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of samples.
//!
//! [`sample`] has mean, median and quantiles. [`fairness`] has Jain's index. [`fit`] tests whether samples follow a
//! distribution.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod fairness;
pub mod fit;
pub mod sample;
