// SPDX-License-Identifier: MIT OR Apache-2.0
//! One leg: what can be said of it from what its socket shows.

pub mod limiter;
