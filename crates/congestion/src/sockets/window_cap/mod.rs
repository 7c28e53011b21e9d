// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caps on the congestion windows of other programs' connections (`window_cap.bpf.c`).
//!
//! A cap is the socket's own `snd_cwnd_clamp`, so it applies until it is lifted, even after this process
//! has ended: [`Caps`] lifts no cap by itself.

#[cfg(feature = "bpf")]
mod caps;

#[cfg(not(feature = "bpf"))]
pub use crate::without_bpf::window_cap::{Caps, permitted};
#[cfg(feature = "bpf")]
pub use caps::{Caps, permitted};

/// Most connections with an order at a time (`orders` in the program): 64 B each.
pub const CONNECTIONS_MAX: usize = 16_384;
