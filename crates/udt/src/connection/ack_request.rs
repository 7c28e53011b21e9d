// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for an ACK, when data waits for one and nothing more goes that would bring it.
//!
//! The draft has a receiver send an ACK each SYN. UDT4's code looks at its timers only when a packet comes, and each 100 ms
//! (queue.cpp, `CRcvQueue::worker`): it acknowledges the last packets before a pause 100 ms late, and lets nobody read
//! them before that. A sender whose window is smaller than what goes in 100 ms waits that long for each window.
//! A keep-alive makes UDT4 look. An end that is known to be none, because it answers probes of the path otherwise, is not asked.

use crate::congestion::SYN;
use longhaul_units::Time;

/// From the last packet to the first request. UDT4 sends no ACK within a SYN of the one before; the path may bring both
/// packets closer together by the rest.
const FIRST_DELAY: Time = Time::from_nanos(SYN.as_nanos() + 1_000_000);

/// Requests after a packet, for those that come too early or are lost. Each waits twice as long as the one before, so they go
/// 11, 33 and 77 ms after the packet. After 100 ms UDT4 looks by itself.
const REQUESTS_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct AckRequest {
    is_enabled: bool,
    remaining: u32,
    interval: Time,
    next_at: Time,
}

impl AckRequest {
    /// Without data that went.
    pub(crate) fn new() -> Self {
        Self {
            is_enabled: true,
            remaining: 0,
            interval: FIRST_DELAY,
            next_at: Time::ZERO,
        }
    }

    /// The other end is no UDT4: its timers run without packets.
    pub(crate) fn disable(&mut self) {
        (self.is_enabled, self.remaining) = (false, 0);
    }

    /// A data packet went.
    pub(crate) fn on_data_sent(&mut self, now: Time) {
        if self.is_enabled {
            (self.remaining, self.interval, self.next_at) =
                (REQUESTS_MAX, FIRST_DELAY, now + FIRST_DELAY);
        }
    }

    /// When the next one goes, if no ACK makes it needless.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.remaining > 0).then_some(self.next_at)
    }

    /// Whether one goes now.
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
    fn requests_go_three_times_after_the_last_packet() {
        let mut request = AckRequest::new();
        assert_eq!(request.deadline(), None);
        request.on_data_sent(Time::ZERO);
        request.on_data_sent(Time::from_millis(5));
        let ms = (0..500).filter(|ms| request.take(Time::from_millis(*ms)));
        assert_eq!(ms.collect::<Vec<_>>(), [16, 38, 82]);
        assert_eq!(request.deadline(), None);
    }

    #[test]
    fn an_end_whose_timers_run_is_not_asked() {
        let mut request = AckRequest::new();
        request.on_data_sent(Time::ZERO);
        request.disable();
        assert_eq!(request.deadline(), None);
        request.on_data_sent(Time::ZERO);
        assert_eq!(request.deadline(), None);
    }
}
