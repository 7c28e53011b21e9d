// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a packet counts as lost once more, where the receiver does not say so.
//!
//! The draft has a receiver report each round trip what stays missing. UDT4's code reports a loss once (core.cpp,
//! `CUDT::checkTimers`), and says nothing more until the first missing packet has come: its sender waits for the expiration, 300 ms
//! at least. An ACK that tells of a packet takes a round trip and a SYN, or a second one if it has to be asked for.

use crate::{congestion::SYN, packet::number::Seq};
use longhaul_units::Time;
use std::collections::VecDeque;

/// While the first one does not come each repetition waits twice as long as the one before, so many times: the rest is for the
/// expiration.
const DOUBLINGS_MAX: u32 = 6;

/// What went and was not heard of.
#[derive(Debug)]
pub(crate) struct RetransmitTimer {
    /// Since when the first is waited for that is not known to have arrived.
    first_since: Time,
    doublings: u32,
    /// What went again and when, in this order.
    retransmissions: VecDeque<(Seq, Time)>,
}

impl RetransmitTimer {
    pub(crate) fn new() -> Self {
        Self {
            first_since: Time::ZERO,
            doublings: 0,
            retransmissions: VecDeque::new(),
        }
    }

    /// The first has come, and another is that now.
    pub(crate) fn on_advance(&mut self, now: Time) {
        (self.first_since, self.doublings) = (now, 0);
    }

    /// One goes, maybe again, maybe the first.
    pub(crate) fn on_sent(&mut self, seq: Seq, is_again: bool, is_first: bool, now: Time) {
        if is_again {
            self.retransmissions.push_back((seq, now));
        }
        if is_first {
            self.first_since = now;
        }
    }

    /// When there is something to repeat, if a long round trip takes so much.
    pub(crate) fn deadline(&self, long: Time) -> Time {
        let since = self
            .retransmissions
            .front()
            .map_or(self.first_since, |(_, at)| *at);
        since.min(self.first_since) + self.timeout(long)
    }

    /// The next that went again so long ago that it would be known to have arrived.
    pub(crate) fn pop_due(&mut self, long: Time, now: Time) -> Option<Seq> {
        let (seq, at) = *self.retransmissions.front()?;
        if at + self.timeout(long) > now {
            return None;
        }
        self.retransmissions.pop_front();
        Some(seq)
    }

    /// Whether the first is so late, too. It is waited for anew.
    pub(crate) fn check_first(&mut self, long: Time, now: Time) -> bool {
        let is_late = self.first_since + self.timeout(long) <= now;
        if is_late {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
            self.first_since = now;
        }
        is_late
    }

    fn timeout(&self, long: Time) -> Time {
        Time::from_nanos((long + SYN + SYN).as_nanos() << self.doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Time = Time::from_millis(5);

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn the_first_is_late_twice_as_late_each_time_until_something_comes() {
        let mut repeat = RetransmitTimer::new();
        repeat.on_advance(ms(100));
        let late = |repeat: &mut RetransmitTimer| {
            let at = repeat.deadline(LONG);
            assert!(repeat.check_first(LONG, at));
            at
        };
        assert_eq!(late(&mut repeat), ms(125));
        assert_eq!(late(&mut repeat), ms(175));
        repeat.on_advance(ms(180));
        assert!(!repeat.check_first(LONG, ms(204)));
        assert_eq!(late(&mut repeat), ms(205));
    }

    #[test]
    fn what_went_again_is_late_in_its_turn() {
        let mut repeat = RetransmitTimer::new();
        repeat.on_advance(ms(100));
        repeat.on_sent(Seq::new(7), true, false, ms(90));
        repeat.on_sent(Seq::new(3), true, false, ms(95));
        repeat.on_sent(Seq::new(9), false, false, ms(96));
        assert_eq!(repeat.deadline(LONG), ms(115));
        assert_eq!(repeat.pop_due(LONG, ms(114)), None);
        assert_eq!(repeat.pop_due(LONG, ms(115)), Some(Seq::new(7)));
        assert_eq!(repeat.pop_due(LONG, ms(115)), None);
        assert_eq!(repeat.pop_due(LONG, ms(120)), Some(Seq::new(3)));
        assert_eq!(repeat.deadline(LONG), ms(125));
    }
}
