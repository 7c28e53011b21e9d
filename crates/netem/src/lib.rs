// SPDX-License-Identifier: MIT OR Apache-2.0
//! An emulated wire: what happens to each segment, and when it comes out.
//!
//! [`Line`] is one direction. It is told of each segment that arrives ([`Line::offer`]) and says
//! when and whether it comes out ([`Line::poll`]); it never sees a byte of payload. Behind real
//! interfaces and under simulated time it is the same code.
//!
//! A [`Shape`] says what a line does; it is made of settings, in the words of `longhaul link`. A
//! [`Schedule`] changes it with time. [`TrainLine`] is a line for whole trains of segments, and
//! [`Regroup`] joins what comes out into runs.
//!
//! ```
//! use longhaul_netem::{Event, Line, Schedule, Segment, Setting, Shape};
//! use longhaul_units::Time;
//!
//! let mut shape = Shape::default();
//! shape.apply(Setting::parse("delay", "10ms")?);
//! let mut line = Line::new(shape, Schedule::default(), 1, Time::ZERO);
//! let segment = Segment { packet: 0, index: 0, last: true, len: 1500 };
//! line.offer(Time::ZERO, segment, None, &mut |_| {});
//! let mut out = Vec::new();
//! line.poll(Time::from_millis(10), &mut |event| out.push(event));
//! assert!(matches!(out[..], [Event::Deliver(delivered)] if delivered.at == Time::from_millis(10)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ack;
pub mod grammar;
pub mod jitter;
pub mod line;
pub mod loss;
pub mod queue;
pub mod random;
pub mod regroup;
pub mod schedule;
pub mod setting;
pub mod train;
pub mod transmitter;

pub use ack::acking::Acking;
pub use line::{Line, witness::Judged};
pub use regroup::{Delivery, Regroup, Run};
pub use schedule::Schedule;
pub use setting::{Setting, Shape};
pub use train::{Departure, Fate, Train, TrainLine};
pub use transmitter::Rate;

/// One packet on the wire, named by the super-packet that it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Which super-packet; the caller counts them.
    pub packet: u64,
    /// Which segment of it.
    pub index: u16,
    /// Whether it is the last one of it.
    pub last: bool,
    /// Bytes from the IP header on.
    pub len: u32,
}

/// What a [`Line`] says of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is out.
    Deliver(Delivered),
    /// It was lost.
    Drop {
        /// Which one.
        segment: Segment,
        /// Why.
        cause: Drop,
    },
    /// It will come out, or be dropped, once more than it was offered.
    Copy(Segment),
    /// What became of it ahead of the wire, before any `Drop` of it: only of an
    /// [observed](Line::observed) line.
    Judged(Judged),
}

/// A segment that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// When it came out: at or before the `now` of the poll.
    pub at: longhaul_units::Time,
    /// Which one.
    pub segment: Segment,
    /// One bit of it is wrong; which one follows from this number.
    pub corrupt: Option<u32>,
}

/// Why a segment was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// The loss process.
    Loss,
    /// The queue was full.
    Overflow,
    /// The queue rule (CoDel, RED).
    QueueRule,
    /// Thinned out, or replaced by a newer ACK.
    AckRule,
}
