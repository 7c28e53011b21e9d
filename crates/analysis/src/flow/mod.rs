// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a capture says of TCP connections: each segment in, once, in order of time; records out.
//!
//! Nothing here reads a file or a clock, and nothing allocates for a segment once a flow's tables have
//! their size. Every table has a bound.

pub mod ack_way;
pub mod both_ends;
mod clock_skew;
pub mod compare;
pub mod course;
pub mod decode;
pub mod flows;
pub mod joint_verdict;
pub mod limits;
pub mod phases;
mod pieces;
pub mod record;
mod rounds;
pub mod segment;
pub mod series;
pub mod settings;
pub mod simulated;
mod spans;
pub mod verdict;

mod acking;
mod bins;
mod bounds;
mod connection;
mod direction;
mod distribution;
mod excerpts;
mod gaps;
mod groups;
mod handshake;
mod holes;
mod key_hash;
mod outstanding;
mod recency;
mod releases;
mod retransmission;
mod round_trip;
mod round_trips;
mod scoreboard;
mod sending;
mod standing;
mod timestamps;
mod unwrap;

pub use flows::Flows;
pub use settings::Settings;

/// Who takes what the analysis has to say, as soon as nothing can change it any more.
pub trait Sink {
    /// A bin of a direction, in order of time; bins without anything in them are left out. `flow` is the
    /// number of the flow's first packet, `upload` is data from the client. `width` counts the settings' bin widths.
    fn bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &series::Bin);

    /// A flow that is over, or that the capture ends before.
    fn flow(&mut self, flow: record::Flow);
}
