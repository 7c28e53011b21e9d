// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for an ACK while data is unacknowledged and no other packet triggers one.
//!
//! The draft has a receiver send an ACK each SYN interval. UDT4's code runs its timers only when a packet comes, and
//! each 100 ms (queue.cpp, `CRcvQueue::worker`). It acknowledges the last packets before a pause 100 ms late, and its
//! application cannot read them before that. A sender whose window is smaller than the data of 100 ms waits that long
//! for each window. A keep-alive makes UDT4 run its timers. A peer that is known not to be UDT4, because it answers
//! path probes differently, is not asked.

use crate::congestion::SYN_INTERVAL;
use longhaul_units::Time;

/// Time from the last packet to the first request. UDT4 sends no ACK within a SYN interval of the one before. The path
/// may shorten the distance between the two packets; the extra millisecond covers that.
const FIRST_DELAY: Time = Time::from_nanos(SYN_INTERVAL.as_nanos() + 1_000_000);

/// Maximum number of requests after a packet, because some come too early or are lost. Each waits twice as long as
/// the one before: they are sent 11, 33 and 77 ms after the packet. After 100 ms UDT4 runs its timers by itself.
const REQUESTS_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct AckRequest {
    is_enabled: bool,
    remaining: u32,
    interval: Time,
    next_at: Time,
}

impl AckRequest {
    /// Creates the state before any data was sent.
    pub(crate) fn new() -> Self {
        Self {
            is_enabled: true,
            remaining: 0,
            interval: FIRST_DELAY,
            next_at: Time::ZERO,
        }
    }

    /// Stops the requests: the peer is not UDT4, so its timers run without packets.
    pub(crate) fn disable(&mut self) {
        (self.is_enabled, self.remaining) = (false, 0);
    }

    /// Restarts the timer after a data packet.
    pub(crate) fn on_data_sent(&mut self, now: Time) {
        if self.is_enabled {
            (self.remaining, self.interval, self.next_at) =
                (REQUESTS_MAX, FIRST_DELAY, now + FIRST_DELAY);
        }
    }

    /// Returns the time of the next request, unless an ACK makes it needless.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.remaining > 0).then_some(self.next_at)
    }

    /// Whether a request is due now; counts it as sent.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        if self.deadline().is_none_or(|due| due > now) {
            return false;
        }
        self.remaining -= 1;
        self.interval = self.interval + self.interval;
        self.next_at = now + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_three_requests_after_the_last_packet() {
        let mut request = AckRequest::new();
        assert_eq!(request.deadline(), None);
        request.on_data_sent(Time::ZERO);
        request.on_data_sent(Time::from_millis(5));
        let ms = (0..500).filter(|ms| request.take(Time::from_millis(*ms)));
        assert_eq!(ms.collect::<Vec<_>>(), [16, 38, 82]);
        assert_eq!(request.deadline(), None);
    }

    #[test]
    fn sends_no_requests_when_disabled() {
        let mut request = AckRequest::new();
        request.on_data_sent(Time::ZERO);
        request.disable();
        assert_eq!(request.deadline(), None);
        request.on_data_sent(Time::ZERO);
        assert_eq!(request.deadline(), None);
    }
}
