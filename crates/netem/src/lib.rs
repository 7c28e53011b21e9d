// SPDX-License-Identifier: MIT OR Apache-2.0
//! An emulated link, as decisions without I/O: whether each segment passes, and the time at which it comes out.
//!
//! [`Line`] is one direction of a link. The caller offers each segment that arrives ([`Line::offer`]).
//! The line says whether and when the segment comes out ([`Line::poll`]). It never sees a byte of
//! payload. The same code runs behind real interfaces and under simulated time.
//!
//! A [`LinkConfig`] holds the settings of a line, in the words of `longhaul link`. A [`Schedule`] changes
//! them with time; a [`ScheduledConfig`] has both, from the options of `longhaul link`. [`TrainLine`] is a line for whole trains of segments, and [`Coalescer`] joins
//! segments that come out into batches. [`conformance`] compares the packets that crossed a path with
//! its settings.
//!
//! ```
//! use longhaul_netem::{Event, Line, LinkConfig, Schedule, Segment, Setting};
//! use longhaul_units::Time;
//!
//! let mut config = LinkConfig::default();
//! config.apply(Setting::parse("delay", "10ms")?);
//!
//! let mut line = Line::new(config, Schedule::default(), 1, Time::ZERO);
//! let segment = Segment { packet: 0, index: 0, last: true, len: 1500 };
//! line.offer(Time::ZERO, segment, None, &mut |_| {});
//!
//! let mut out = Vec::new();
//! line.poll(Time::from_millis(10), &mut |event| out.push(event));
//! assert!(matches!(out[..], [Event::Deliver(delivered)] if delivered.at == Time::from_millis(10)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ack;
pub mod coalescer;
pub mod conformance;
pub mod grammar;
pub mod jitter;
pub mod line;
pub mod loss;
pub mod queue;
pub mod random;
pub mod schedule;
pub mod scheduled_config;
pub mod setting;
pub mod train;
pub mod transmitter;
pub mod warnings;

pub use ack::class::AckClass;
pub use coalescer::{Batch, Coalescer, Delivery};
pub use line::{Line, observer::SegmentVerdict};
pub use schedule::Schedule;
pub use scheduled_config::ScheduledConfig;
pub use setting::{LinkConfig, Setting};
pub use train::{Departure, Train, TrainLine, TrainVerdict};
pub use transmitter::Rate;

/// A segment on the wire, identified by its super-packet and its position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of the super-packet, counted by the caller.
    pub packet: u64,
    /// Position in the super-packet, from 0.
    pub index: u16,
    /// Whether the segment is the last of its super-packet.
    pub last: bool,
    /// Length in bytes, from the IP header on.
    pub len: u32,
}

/// An event that a [`Line`] reports about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The segment comes out.
    Deliver(Delivered),
    /// The segment is lost.
    Drop {
        /// The lost segment.
        segment: Segment,
        /// Reason of the loss.
        cause: DropCause,
    },
    /// The segment is duplicated: a second `Deliver` or `Drop` follows for it.
    Duplicate(Segment),
    /// The verdict on the segment ahead of the wire. Comes before its `Drop`, and only from an
    /// [observed](Line::observed) line.
    Verdict(SegmentVerdict),
}

/// A segment that has come out of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Time at which the segment came out: at or before the `now` of the poll.
    pub at: longhaul_units::Time,
    /// The segment.
    pub segment: Segment,
    /// Number that selects the bit to flip; `None` if the segment is intact.
    pub corrupt: Option<u32>,
}

/// Cause of a segment's loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// Random loss, or loss by number.
    Loss,
    /// Tail drop: the queue was full.
    Overflow,
    /// Active queue management (CoDel, RED).
    Aqm,
    /// ACK thinning or pacing: a later ACK supersedes this one.
    AckFiltering,
}
