// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send times of packets: one entry for each super-packet, at most a window of them.

use longhaul_units::Time;
use std::collections::VecDeque;

/// Super-packet that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SuperPacket {
    /// End of its packets, exclusive. They begin where the previous super-packet ends.
    end: u64,
    /// Time of sending.
    pub(crate) at: Time,
    /// Packets in flight, this super-packet's included.
    pub(crate) in_flight: u32,
}

/// Super-packets that are not wholly acknowledged, in order.
#[derive(Debug, Default)]
pub(crate) struct SendLog(VecDeque<SuperPacket>);

impl SendLog {
    pub(crate) fn push(&mut self, end: u64, at: Time, in_flight: u32) {
        self.0.push_back(SuperPacket { end, at, in_flight });
    }

    /// Returns the oldest super-packet that is not wholly acknowledged.
    pub(crate) fn oldest(&self) -> Option<&SuperPacket> {
        self.0.front()
    }

    /// Returns the super-packet that carried `packet`. Old ones are near the front and most often looked up.
    pub(crate) fn find(&self, packet: u64) -> Option<SuperPacket> {
        match self.0.front() {
            Some(first) if packet < first.end => Some(*first),
            _ => {
                let at = self.0.partition_point(|sent| sent.end <= packet);
                self.0.get(at).copied()
            }
        }
    }

    /// Removes the acknowledged super-packets. Returns the last one that `una` reaches into or ends with.
    pub(crate) fn release(&mut self, una: u64) -> Option<SuperPacket> {
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
