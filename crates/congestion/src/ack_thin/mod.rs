// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK control at the receiver: which pure ACKs of a cgroup's sockets stay behind, and which
//! queueing class the others go through.

mod attach;
mod delayed_acks;
pub mod math;

pub use attach::{AckControl, Class, Counts, RATIO_MAX, Settings, attach};
