// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive times of packets from the kernel's timestamps (SO_TIMESTAMPNS, socket(7)), which do not depend on when
//! they are read.

use longhaul_units::Time;
use std::time::{Duration, SystemTime};

/// Converts the kernel's timestamps into the time of the connections.
#[derive(Debug, Default)]
pub(super) struct RxTimestamps {
    /// Latest time that the connections have seen: no packet gets an earlier one.
    latest: Time,
}

impl RxTimestamps {
    /// Records that the connections have seen `now`.
    pub(super) fn advance_to(&mut self, now: Time) {
        self.latest = self.latest.max(now);
    }

    /// Returns the receive time of a packet with this kernel timestamp, at `now` in connection time and `wall` in
    /// system time. The system clock may be set: the result is neither earlier than the packets before, nor later
    /// than `now`.
    pub(super) fn receive_time(
        &mut self,
        stamp: Option<Duration>,
        now: Time,
        wall: SystemTime,
    ) -> Time {
        let received = stamp.map(|stamp| SystemTime::UNIX_EPOCH + stamp);
        let age = received.and_then(|received| wall.duration_since(received).ok());
        let received_at = age.map_or(now, |age| now.since(age.into()));
        self.advance_to(received_at);
        self.latest.min(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(10);

    fn receive_at(arrivals: &mut RxTimestamps, stamp_us: Option<u64>) -> Time {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        arrivals.receive_time(stamp_us.map(Duration::from_micros), NOW, wall)
    }

    #[test]
    fn converts_timestamps_to_receive_times() {
        let mut arrivals = RxTimestamps::default();
        let first = receive_at(&mut arrivals, Some(999_999_500));
        let second = receive_at(&mut arrivals, Some(999_999_512));
        assert_eq!(NOW.since(first), Time::from_micros(500));
        assert_eq!(second.since(first), Time::from_micros(12));
        assert_eq!(
            receive_at(&mut arrivals, None),
            NOW,
            "the present without a timestamp"
        );
    }

    #[test]
    fn bounds_receive_times_when_the_clock_is_set() {
        let mut arrivals = RxTimestamps::default();
        arrivals.advance_to(NOW - Time::from_millis(1));
        let long_ago = receive_at(&mut arrivals, Some(1_000_000));
        assert_eq!(NOW.since(long_ago), Time::from_millis(1));
        assert_eq!(
            receive_at(&mut arrivals, Some(2_000_000_000)),
            NOW,
            "not later than now"
        );
    }
}
