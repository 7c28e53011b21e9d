// SPDX-License-Identifier: MIT OR Apache-2.0
//! When packets came, as the kernel says (SO_TIMESTAMPNS, socket(7)), however late they are looked at.

use longhaul_units::Time;
use std::time::{Duration, SystemTime};

/// Turns the kernel's times into ours.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The connections were told of this moment; none before it is told any more.
    latest: Time,
}

impl Arrivals {
    /// What is told at `now` is told of `now`.
    pub(super) fn passed(&mut self, now: Time) {
        self.latest = self.latest.max(now);
    }

    /// When it came that has this stamp, where it is `now` here and `wall` there. The kernel's clock may be set: no packet came before
    /// those of before, nor comes later than now.
    pub(super) fn of(&mut self, stamp: Option<Duration>, now: Time, wall: SystemTime) -> Time {
        let came = stamp.map(|stamp| SystemTime::UNIX_EPOCH + stamp);
        let age = came.and_then(|came| wall.duration_since(came).ok());
        let came = age.map_or(now, |age| now.since(age.into()));
        self.passed(came);
        self.latest.min(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(10);

    fn came(arrivals: &mut Arrivals, stamp_us: Option<u64>) -> Time {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        arrivals.of(stamp_us.map(Duration::from_micros), NOW, wall)
    }

    #[test]
    fn a_packet_came_when_its_stamp_says() {
        let mut arrivals = Arrivals::default();
        let first = came(&mut arrivals, Some(999_999_500));
        let second = came(&mut arrivals, Some(999_999_512));
        assert_eq!(NOW.since(first), Time::from_micros(500));
        assert_eq!(second.since(first), Time::from_micros(12));
        assert_eq!(came(&mut arrivals, None), NOW, "without one, now");
    }

    #[test]
    fn a_clock_that_is_set_turns_nothing_back() {
        let mut arrivals = Arrivals::default();
        arrivals.passed(NOW - Time::from_millis(1));
        let long_ago = came(&mut arrivals, Some(1_000_000));
        assert_eq!(NOW.since(long_ago), Time::from_millis(1));
        assert_eq!(came(&mut arrivals, Some(2_000_000_000)), NOW, "nor on");
    }
}
