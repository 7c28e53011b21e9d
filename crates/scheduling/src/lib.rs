// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schedule of `longhaul copy`, as decisions without I/O and without a clock.
//!
//! - [`Work`] decides which block a stream carries next.
//! - [`Ledger`] knows which parcels must be retransmitted when a stream breaks, and decides which are sent twice
//!   because a stream is too slow.
//! - [`streams`] decides how many streams there are.
//! - [`extents`] divides a copy among several workers.
//! - [`limit`] shares a rate among several senders.
//! - [`placement`] decides which host has which part of a copy when several hosts have a share each.
//! - [`Verdict`] names the resource that limits the rate of a copy.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod bottleneck;
pub mod extents;
mod ledger;
pub mod limit;
mod metrics;
pub mod placement;
pub mod streams;
mod work;

pub use bottleneck::{Bottleneck, Endpoint, Verdict};
pub use ledger::{Ledger, StreamEnded, StreamRate};
pub use metrics::{Metrics, Network, Stage, StageTime, StageTimes};
pub use work::{Missing, Parcel, Work};
