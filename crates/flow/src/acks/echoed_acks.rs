// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ACK that a sender had received last when it sent a packet, by the packet's TSecr (RFC 7323 §4.3).
//!
//! A capture far from the sender sees data and ACKs at other times than the sender. The echo joins them again: it names
//! the ACK, and so the data in flight and the window that the sender knew, wherever the capture point is. The time from
//! that ACK to the packet is the round trip between the capture point and the sender.

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use crate::segment::is_newer;
use std::collections::VecDeque;

/// The last ACK with its TSval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EchoedAck {
    pub(crate) tsval: u32,
    /// Time when the first ACK with this TSval passed the capture point, ns. Others may have waited behind it.
    pub(crate) at_ns: u64,
    /// Cumulative ACK number.
    pub(crate) ack: u64,
    /// End of the advertised window; 0 if it is unknown.
    pub(crate) window_end: u64,
}

/// ACKs that a packet may still echo, by TSval.
#[derive(Debug, Default)]
pub(crate) struct EchoedAcks {
    /// Newest ACK. Beside the sender nearly every packet echoes it, and the table stays empty.
    last: Option<EchoedAck>,
    /// ACKs before it, the oldest first.
    older: VecDeque<EchoedAck>,
}

impl EchoedAcks {
    /// Records an ACK. Of those with the same TSval the last one stays, with the time of the first: the first data that
    /// echoes them answers the first. If too many are pending, the oldest is dropped.
    #[inline]
    pub(crate) fn record(&mut self, ack: EchoedAck, budget: &mut MemoryBudget) {
        match &mut self.last {
            Some(last) if last.tsval == ack.tsval => {
                (last.ack, last.window_end) = (ack.ack, ack.window_end);
            }
            Some(last) if !is_newer(ack.tsval, last.tsval) => {}
            Some(last) => {
                let last = std::mem::replace(last, ack);
                self.push_older(last, budget);
            }
            last @ None => *last = Some(ack),
        }
    }

    fn push_older(&mut self, ack: EchoedAck, budget: &mut MemoryBudget) {
        if !budget.ensure_room(&mut self.older, budget.settings.timestamps_max) {
            self.older.pop_front();
        }
        if self.older.len() < self.older.capacity() {
            self.older.push_back(ack);
        }
    }

    /// Returns the last ACK that the sender of a packet with `tsecr` had received. Older ones are forgotten.
    #[inline]
    pub(crate) fn take(&mut self, tsecr: u32) -> Option<EchoedAck> {
        match self.last {
            Some(last) if is_newer(last.tsval, tsecr) => self.take_older(tsecr),
            last => {
                self.older.clear();
                last
            }
        }
    }

    fn take_older(&mut self, tsecr: u32) -> Option<EchoedAck> {
        while (self.older.get(1)).is_some_and(|next| !is_newer(next.tsval, tsecr)) {
            self.older.pop_front();
        }
        let first = self.older.front()?;
        (!is_newer(first.tsval, tsecr)).then_some(*first)
    }

    /// Forgets all ACKs, after a break of the sequence numbers.
    pub(crate) fn clear(&mut self) {
        self.last = None;
        self.older.clear();
    }

    /// Returns the memory of the table, bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn ack(tsval: u32, ack: u64) -> EchoedAck {
        EchoedAck {
            tsval,
            at_ns: ack * 10,
            ack,
            window_end: ack + 100,
        }
    }

    fn echoed(acks: &[EchoedAck], most: usize) -> EchoedAcks {
        let settings = Settings {
            timestamps_max: most,
            ..Settings::default()
        };
        let (mut echoed, mut budget) = (EchoedAcks::default(), MemoryBudget::new(settings));
        acks.iter().for_each(|ack| echoed.record(*ack, &mut budget));
        echoed
    }

    #[test]
    fn returns_the_last_ack_with_the_echoed_timestamp_and_the_first_time() {
        let mut acks = echoed(&[ack(7, 1), ack(7, 2), ack(9, 3)], 8);
        let last = EchoedAck {
            at_ns: 10,
            ..ack(7, 2)
        };
        assert_eq!(acks.take(6), None);
        assert_eq!(acks.take(7), Some(last));
        assert_eq!(acks.take(7), Some(last));
        assert_eq!(acks.take(9), Some(ack(9, 3)));
        assert_eq!(acks.take(7), None, "forgotten");
    }

    /// Data of the other direction that repeats an ACK has newer timestamps, which are not recorded.
    #[test]
    fn an_unknown_timestamp_names_the_ack_before_it() {
        let mut acks = echoed(&[ack(u32::MAX, 1), ack(3, 2)], 8);
        assert_eq!(acks.take(1), Some(ack(u32::MAX, 1)));
        assert_eq!(acks.take(4), Some(ack(3, 2)));
    }

    #[test]
    fn forgets_the_oldest_beyond_its_bound() {
        let mut acks = echoed(&[ack(1, 1), ack(2, 2), ack(3, 3)], 1);
        assert_eq!(acks.take(1), None);
        assert_eq!(acks.take(2), Some(ack(2, 2)));
    }
}
