// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a capture says of TCP connections: each segment in, once, in order of time; records out.
//!
//! Nothing here reads a file or a clock, and nothing allocates for a segment once a flow's tables have
//! their size. Every table has a bound.

pub mod both_ends;
pub mod course;
pub mod decode;
pub mod flows;
pub mod record;
pub mod segment;
pub mod settings;
pub mod verdict;

mod acks;
mod bounds;
mod clock_skew;
pub(crate) mod compare;
mod connection;
mod data;
mod distribution;
mod excerpts;
mod round_trips;

pub use acks::ack_way;
pub use course::series;
pub use flows::Flows;
pub use settings::Settings;
pub use verdict::{joint_verdict, limits, phases};

/// Who takes what the analysis has to say, as soon as nothing can change it any more.
pub trait Sink {
    /// A bin of a direction, in order of time; bins without anything in them are left out. `flow` is the
    /// number of the flow's first packet, `upload` is data from the client. `width` counts the settings' bin widths.
    fn bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &series::Bin);

    /// A flow that is over, or that the capture ends before.
    fn flow(&mut self, flow: record::Flow);
}
