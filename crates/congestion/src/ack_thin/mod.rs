// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK control at the receiver: selects which pure ACKs of a cgroup's sockets are suppressed, and the
//! queueing class of the others.

#[cfg(feature = "bpf")]
mod attach;
#[cfg(feature = "bpf")]
mod delayed_acks;
pub mod math;
mod settings;

#[cfg(not(feature = "bpf"))]
pub use crate::without_bpf::ack_thin::{AckControl, attach};
#[cfg(feature = "bpf")]
pub use attach::{AckControl, attach};
pub use settings::{Class, Counts, RATIO_MAX, Settings};
