// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a tap in front of a line sees: each segment once, as it came, and what became of it.

use crate::{Drop, Segment};
use longhaul_units::Time;
use std::collections::{HashMap, VecDeque};

/// A segment that came to a line, told as soon as its fate is settled: at once, unless the ACK rules
/// hold it or CoDel decides on it at the head of the queue.
///
/// Each segment that is offered is told of once. Of one that is duplicated it is the fate of the first
/// of both. One that waits while the queue rule becomes CoDel has been told of as passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// When it was offered.
    pub at: Time,
    /// Bytes that waited for the transmitter then, without the segment that was being sent.
    pub queue_bytes: u64,
    /// Which one.
    pub segment: Segment,
    /// Why it will not come out; `None` if it will.
    pub lost: Option<Drop>,
}

/// What a segment found when it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: Time,
    pub(crate) queue_bytes: u64,
}

/// Remembers what segments found until their fate is settled. Off, it costs a branch.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    on: bool,
    /// Of what the ACK rules hold, by super-packet and segment. They bound it.
    held: HashMap<(u64, u16), Found>,
    /// One for each segment in the queue, in its order; `None` is told of already.
    waiting: VecDeque<Option<Found>>,
}

impl Witness {
    /// Begins while `waiting` segments are in the queue, of which it won't tell.
    pub(crate) fn begin(&mut self, waiting: usize) {
        self.on = true;
        self.waiting.resize(waiting, None);
    }

    /// A segment comes; `None` if nobody wants to know.
    pub(crate) fn see(&self, at: Time, queue_bytes: u64) -> Option<Found> {
        self.on.then_some(Found { at, queue_bytes })
    }

    /// The ACK rules have the segment.
    pub(crate) fn hold(&mut self, segment: Segment, found: Option<Found>) {
        if let Some(found) = found {
            self.held.insert((segment.packet, segment.index), found);
        }
    }

    /// The ACK rules have it no more.
    pub(crate) fn release(&mut self, segment: Segment) -> Option<Found> {
        match self.on {
            true => self.held.remove(&(segment.packet, segment.index)),
            false => None,
        }
    }

    /// A segment joins the queue, told of already if there is nothing to remember.
    pub(crate) fn wait(&mut self, open: Option<Found>) {
        if self.on {
            self.waiting.push_back(open);
        }
    }

    /// The head of the queue leaves it.
    pub(crate) fn next(&mut self) -> Option<Found> {
        self.waiting.pop_front().flatten()
    }
}
