// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retransmission timer: detects that a retransmitted packet was lost again where the receiver does not report it.
//!
//! The draft has a receiver report missing packets each round trip. UDT4's code reports a loss once (core.cpp,
//! `CUDT::checkTimers`), and again only after the first missing packet arrived. Its sender waits for the expiration, at
//! least 300 ms. An ACK for a packet takes a round trip and a SYN interval, or a second SYN interval if it must be
//! requested.

use crate::{congestion::SYN_INTERVAL, packet::number::Seq};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Maximum number of doublings of the timeout while the first packet does not arrive. The expiration timer handles
/// the rest.
const DOUBLINGS_MAX: u32 = 6;

/// Timer of the first unacknowledged packet and of the retransmissions.
#[derive(Debug)]
pub(crate) struct RetransmitTimer {
    /// Time since which the first packet that is not known to have arrived is awaited.
    first_since: Time,
    doublings: u32,
    /// Retransmitted packets and the times they were sent, in order.
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

    /// Handles an ACK that advanced: another packet is the first now.
    pub(crate) fn on_advance(&mut self, now: Time) {
        (self.first_since, self.doublings) = (now, 0);
    }

    /// Records that a packet is sent.
    pub(crate) fn on_sent(&mut self, seq: Seq, is_retransmission: bool, is_first: bool, now: Time) {
        if is_retransmission {
            self.retransmissions.push_back((seq, now));
        }
        if is_first {
            self.first_since = now;
        }
    }

    /// Returns the time at which a timeout expires. `rtt_bound` is the upper bound of the round-trip time.
    pub(crate) fn deadline(&self, rtt_bound: Time) -> Time {
        let since = self
            .retransmissions
            .front()
            .map_or(self.first_since, |(_, at)| *at);
        since.min(self.first_since) + self.timeout(rtt_bound)
    }

    /// Removes and returns the next retransmitted packet whose ACK should have arrived by now.
    pub(crate) fn pop_due(&mut self, rtt_bound: Time, now: Time) -> Option<Seq> {
        let (seq, at) = *self.retransmissions.front()?;
        if at + self.timeout(rtt_bound) > now {
            return None;
        }
        self.retransmissions.pop_front();
        Some(seq)
    }

    /// Whether the timeout of the first packet expired; restarts it with twice the time if so.
    pub(crate) fn check_first(&mut self, rtt_bound: Time, now: Time) -> bool {
        let is_late = self.first_since + self.timeout(rtt_bound) <= now;
        if is_late {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
            self.first_since = now;
        }
        is_late
    }

    fn timeout(&self, rtt_bound: Time) -> Time {
        Time::from_nanos((rtt_bound + SYN_INTERVAL + SYN_INTERVAL).as_nanos() << self.doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_BOUND: Time = Time::from_millis(5);

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn doubles_the_timeout_of_the_first_packet_until_an_ack_advances() {
        let mut timer = RetransmitTimer::new();
        timer.on_advance(ms(100));
        let expire = |timer: &mut RetransmitTimer| {
            let at = timer.deadline(RTT_BOUND);
            assert!(timer.check_first(RTT_BOUND, at));
            at
        };
        assert_eq!(expire(&mut timer), ms(125));
        assert_eq!(expire(&mut timer), ms(175));
        timer.on_advance(ms(180));
        assert!(!timer.check_first(RTT_BOUND, ms(204)));
        assert_eq!(expire(&mut timer), ms(205));
    }

    #[test]
    fn retransmissions_time_out_in_order() {
        let mut timer = RetransmitTimer::new();
        timer.on_advance(ms(100));
        timer.on_sent(Seq::new(7), true, false, ms(90));
        timer.on_sent(Seq::new(3), true, false, ms(95));
        timer.on_sent(Seq::new(9), false, false, ms(96));
        assert_eq!(timer.deadline(RTT_BOUND), ms(115));
        assert_eq!(timer.pop_due(RTT_BOUND, ms(114)), None);
        assert_eq!(timer.pop_due(RTT_BOUND, ms(115)), Some(Seq::new(7)));
        assert_eq!(timer.pop_due(RTT_BOUND, ms(115)), None);
        assert_eq!(timer.pop_due(RTT_BOUND, ms(120)), Some(Seq::new(3)));
        assert_eq!(timer.deadline(RTT_BOUND), ms(125));
    }
}
