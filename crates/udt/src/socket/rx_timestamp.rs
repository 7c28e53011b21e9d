// SPDX-License-Identifier: MIT OR Apache-2.0
//! When packets came, as the kernel says (SO_TIMESTAMPNS, socket(7)), however late they are looked at.

use longhaul_units::Time;
use std::time::{Duration, SystemTime};

/// Turns the kernel's times into ours.
#[derive(Debug, Default)]
pub(super) struct RxTimestamps {
    /// The connections were told of this moment; none before it is told any more.
    latest: Time,
}

impl RxTimestamps {
    /// What is told at `now` is told of `now`.
    pub(super) fn advance_to(&mut self, now: Time) {
        self.latest = self.latest.max(now);
    }

    /// When it came that has this stamp, where it is `now` here and `wall` there. The kernel's clock may be set: no packet came before
    /// those of before, nor comes later than now.
    pub(super) fn receive_time(
        &mut self,
        stamp: Option<Duration>,
        now: Time,
        wall: SystemTime,
    ) -> Time {
        let came = stamp.map(|stamp| SystemTime::UNIX_EPOCH + stamp);
        let age = came.and_then(|came| wall.duration_since(came).ok());
        let came = age.map_or(now, |age| now.since(age.into()));
        self.advance_to(came);
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
    fn a_packet_came_when_its_stamp_says() {
        let mut arrivals = RxTimestamps::default();
        let first = receive_at(&mut arrivals, Some(999_999_500));
        let second = receive_at(&mut arrivals, Some(999_999_512));
        assert_eq!(NOW.since(first), Time::from_micros(500));
        assert_eq!(second.since(first), Time::from_micros(12));
        assert_eq!(receive_at(&mut arrivals, None), NOW, "without one, now");
    }

    #[test]
    fn a_clock_that_is_set_turns_nothing_back() {
        let mut arrivals = RxTimestamps::default();
        arrivals.advance_to(NOW - Time::from_millis(1));
        let long_ago = receive_at(&mut arrivals, Some(1_000_000));
        assert_eq!(NOW.since(long_ago), Time::from_millis(1));
        assert_eq!(
            receive_at(&mut arrivals, Some(2_000_000_000)),
            NOW,
            "nor on"
        );
    }
}
