// SPDX-License-Identifier: MIT OR Apache-2.0
//! An emulated wire: what happens to each segment, and when it leaves.

pub mod ack;
pub mod codel;
pub mod discipline;
pub mod grammar;
pub mod jitter;
pub mod loss;
pub mod random;
pub mod red;
pub mod trace;
