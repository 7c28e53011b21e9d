// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK control at the receiver: selects which pure ACKs of a cgroup's sockets are suppressed, and the
//! queueing class of the others.

mod attach;
mod delayed_acks;
pub mod math;

pub use attach::{AckControl, Class, Counts, RATIO_MAX, Settings, attach};
