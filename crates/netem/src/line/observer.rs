// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observation point in front of a line: each segment once, as it arrived, with its verdict.

use crate::{DropCause, Segment};
use longhaul_units::Time;
use std::collections::{HashMap, VecDeque};

/// The verdict on a segment that arrived at a line, reported as soon as it is known.
///
/// The verdict is known at once, unless the ACK rules hold the segment or CoDel decides on it at the
/// head of the queue. Each offered segment gets one verdict. A duplicated segment has the verdict
/// of its first copy. A segment that waits while the AQM becomes CoDel was reported as passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentVerdict {
    /// Time at which the segment was offered.
    pub at: Time,
    /// Bytes that waited for the transmitter then, without the segment in service.
    pub queue_bytes: u64,
    /// The segment.
    pub segment: Segment,
    /// Cause of the loss; `None` if the segment passes.
    pub lost: Option<DropCause>,
}

/// Arrival of a segment: its time, and the queue at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Time,
    /// Bytes that waited for the transmitter, without the segment in service.
    pub(crate) queue_bytes: u64,
}

/// Arrivals whose verdict is not known yet. A disabled observer costs a branch a call.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    enabled: bool,
    /// Arrivals of ACKs that the ACK rules hold, by super-packet and segment index. The ACK rules
    /// bound their number.
    held: HashMap<(u64, u16), Arrival>,
    /// An entry for each segment in the queue, in the order of the queue; `None` if its verdict
    /// was reported.
    queued: VecDeque<Option<Arrival>>,
}

impl Observer {
    /// Enables the observer. No verdict is reported for the `queued` segments already in the queue.
    pub(crate) fn enable(&mut self, queued: usize) {
        self.enabled = true;
        self.queued.resize(queued, None);
    }

    /// The arrival of a segment now; `None` if the observer is disabled.
    pub(crate) fn arrival(&self, at: Time, queue_bytes: u64) -> Option<Arrival> {
        self.enabled.then_some(Arrival { at, queue_bytes })
    }

    /// Keeps the arrival of a segment that goes to the ACK rules.
    pub(crate) fn hold(&mut self, segment: Segment, arrival: Option<Arrival>) {
        if let Some(arrival) = arrival {
            self.held.insert((segment.packet, segment.index), arrival);
        }
    }

    /// Returns the arrival of a segment that comes back from the ACK rules.
    pub(crate) fn release(&mut self, segment: Segment) -> Option<Arrival> {
        if self.enabled {
            self.held.remove(&(segment.packet, segment.index))
        } else {
            None
        }
    }

    /// Follows a segment into the queue; `pending` is `None` if its verdict was reported.
    pub(crate) fn enqueue(&mut self, pending: Option<Arrival>) {
        if self.enabled {
            self.queued.push_back(pending);
        }
    }

    /// Follows the head of the queue out of it; `None` if its verdict was reported.
    pub(crate) fn dequeue(&mut self) -> Option<Arrival> {
        self.queued.pop_front().flatten()
    }
}
