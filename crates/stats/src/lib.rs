// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of samples.
//!
//! [`fit`] tests whether samples follow a distribution.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod fit;
