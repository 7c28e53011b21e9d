// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each packet was first sent: one entry a super-packet, at most a window of them.

use longhaul_units::Time;
use std::collections::VecDeque;

/// A super-packet that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// One past its last packet; it begins where the one before it ends.
    end: u64,
    /// When it was sent.
    pub(crate) at: Time,
    /// Packets in flight, with it.
    pub(crate) in_flight: u32,
}

#[derive(Debug, Default)]
pub(crate) struct SentLog(VecDeque<Sent>);

impl SentLog {
    pub(crate) fn push(&mut self, end: u64, at: Time, in_flight: u32) {
        self.0.push_back(Sent { end, at, in_flight });
    }

    /// The oldest that is not all acknowledged.
    pub(crate) fn oldest(&self) -> Option<&Sent> {
        self.0.front()
    }

    /// The one that `packet` went with; old ones are near the front and most asked for.
    pub(crate) fn of(&self, packet: u64) -> Option<Sent> {
        match self.0.front() {
            Some(first) if packet < first.end => Some(*first),
            _ => {
                let at = self.0.partition_point(|sent| sent.end <= packet);
                self.0.get(at).copied()
            }
        }
    }

    /// Forgets what is acknowledged; the last one that `una` reaches into or ends with.
    pub(crate) fn release(&mut self, una: u64) -> Option<Sent> {
        let mut last = None;
        while self.0.front().is_some_and(|first| first.end <= una) {
            last = self.0.pop_front();
        }
        match last {
            Some(sent) if sent.end == una => last,
            _ => self.0.front().copied().or(last),
        }
    }
}
