// SPDX-License-Identifier: MIT OR Apache-2.0
//! CoDel (RFC 8289), one verdict for each segment that leaves the head of the queue.
//!
//! The RFC's pseudocode (§5.5, §5.6) loops over segments inside `deque`; here the owner loops. Its
//! loop position becomes `Phase`. The RFC also resets its clock when the queue is found empty;
//! that needs no call here, because the last segment of a queue has no more than an MTU behind it
//! and resets the clock itself.

use longhaul_units::Time;

/// What becomes of a segment at the head of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Transmit it.
    Keep,
    /// Drop it and ask again about the next one.
    Drop,
}

/// The state of one queue.
#[derive(Debug, Clone)]
pub struct CoDel {
    target: Time,
    interval: Time,
    mtu: u64,
    phase: Phase,
    /// When the delay will have stood above the target for an interval.
    first_above: Option<Time>,
    drop_next: Time,
    /// Drops since this dropping state began (or what the last one had reached, see `enter`).
    count: u32,
    count_at_entry: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The delay is under control.
    Calm,
    /// The first drop was just made; the RFC sends the segment after it unseen.
    Entered,
    /// Between two drops of the dropping state.
    Dropping,
    /// A later drop was just made; the segment after it sets the time of the next one.
    Dropped,
}

impl CoDel {
    /// `mtu` in bytes: a queue of no more than that is never dropped from.
    #[must_use]
    pub fn new(target: Time, interval: Time, mtu: u32) -> Self {
        Self {
            target,
            interval,
            mtu: u64::from(mtu),
            phase: Phase::Calm,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            count_at_entry: 0,
        }
    }

    /// What becomes of the segment just taken from the head, which waited for `sojourn` and has
    /// `backlog` bytes behind it. After a drop it must be asked about the next one at once.
    pub fn keep(&mut self, now: Time, sojourn: Time, backlog: u64) -> Verdict {
        let standing = self.stands(now, sojourn, backlog);
        match self.phase {
            Phase::Calm if standing => self.enter(now),
            Phase::Calm => Verdict::Keep,
            Phase::Entered => self.go(Phase::Dropping, Verdict::Keep),
            Phase::Dropping | Phase::Dropped if !standing => self.go(Phase::Calm, Verdict::Keep),
            Phase::Dropping => self.drop_when_due(now),
            Phase::Dropped => {
                self.drop_next = self.control_law(self.drop_next);
                self.drop_when_due(now)
            }
        }
    }

    /// RFC 8289 §5.6, `dodequeue`: whether the delay has stood above the target for an interval.
    fn stands(&mut self, now: Time, sojourn: Time, backlog: u64) -> bool {
        if sojourn < self.target || backlog <= self.mtu {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            Some(time) => now >= time,
            None => {
                self.first_above = Some(now + self.interval);
                false
            }
        }
    }

    /// RFC 8289 §5.5: enters the dropping state with a drop. If the last one ended less than 16
    /// intervals ago its drop rate is a better start than one drop an interval.
    fn enter(&mut self, now: Time) -> Verdict {
        let delta = self.count - self.count_at_entry;
        let recent = now.since(self.drop_next) < self.interval * 16;
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.count_at_entry = self.count;
        self.drop_next = self.control_law(now);
        self.go(Phase::Entered, Verdict::Drop)
    }

    fn drop_when_due(&mut self, now: Time) -> Verdict {
        if now < self.drop_next {
            return self.go(Phase::Dropping, Verdict::Keep);
        }
        self.count += 1;
        self.go(Phase::Dropped, Verdict::Drop)
    }

    /// RFC 8289 §5.3: drops come closer as 1/√count, so that throughput falls linearly in time.
    fn control_law(&self, from: Time) -> Time {
        from + Time::from_secs_f64(self.interval.as_secs_f64() / f64::from(self.count).sqrt())
    }

    fn go(&mut self, phase: Phase, verdict: Verdict) -> Verdict {
        self.phase = phase;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn codel() -> CoDel {
        CoDel::new(MS(5), MS(100), 1500)
    }

    #[test]
    fn a_short_burst_is_left_alone() {
        let mut codel = codel();
        for t in 0..=99 {
            assert_eq!(codel.keep(MS(t), MS(50), 90_000), Verdict::Keep);
        }
        assert_eq!(codel.keep(MS(100), MS(4), 90_000), Verdict::Keep);
        assert_eq!(codel.keep(MS(101), MS(50), 90_000), Verdict::Keep);
    }

    #[test]
    fn one_interval_of_standing_delay_drops_one() {
        let mut codel = codel();
        codel.keep(MS(0), MS(5), 90_000);
        assert_eq!(codel.keep(MS(99), MS(5), 90_000), Verdict::Keep);
        assert_eq!(codel.keep(MS(100), MS(5), 90_000), Verdict::Drop);
        assert_eq!(codel.keep(MS(100), MS(5), 90_000), Verdict::Keep);
    }

    #[test]
    fn an_mtu_or_less_behind_is_no_standing_queue() {
        let mut codel = codel();
        for t in 0..500 {
            assert_eq!(codel.keep(MS(t), MS(50), 1500), Verdict::Keep);
        }
    }

    #[test]
    fn a_quick_return_resumes_the_drop_rate() {
        let mut codel = codel();
        let drops = |codel: &mut CoDel, span: std::ops::Range<u64>| -> Vec<u64> {
            span.filter(|t| codel.keep(MS(*t), MS(50), 90_000) == Verdict::Drop)
                .collect()
        };
        let first = drops(&mut codel, 0..1000);
        codel.keep(MS(1000), MS(1), 90_000);
        let second = drops(&mut codel, 1001..1300);
        assert!(first[1] - first[0] > 90, "{first:?}");
        assert!(second[1] - second[0] < 50, "{second:?}");
    }
}
