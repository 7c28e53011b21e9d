// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of samples.
//!
//! [`fit`] tests whether samples follow a distribution.

pub mod fit;
