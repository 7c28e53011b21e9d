// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput of TCP over a path: the papers' models and their successors, one formula a file.
//!
//! A formula is a pure function of loss, round trip and windows. A [`Formula`] names its source and range, and
//! an [`Estimate`] says when a path is outside that range. Windows are in packets, times in seconds, rates in
//! bits a second of payload.
//!
//! [`prediction`] combines the formulas for a congestion control on a [`Path`]. [`slow_start`] predicts the
//! duration of a transfer, and [`chain`] places relays. `docs/plan.md` lists the error of each formula against
//! simulated and real TCP.

pub mod chain;
pub mod control;
mod formula;
mod path;
pub mod prediction;
pub mod receive_buffer;
pub mod relays;
pub mod slow_start;
pub mod streams;
pub mod window_limit;

pub use control::Control;
pub use formula::{Estimate, Formula};
pub use path::{HEADERS, Path};
