// SPDX-License-Identifier: MIT OR Apache-2.0
//! CoDel (RFC 8289), with a verdict on each segment that is taken from the head of the queue.
//!
//! The RFC's pseudocode (§5.5, §5.6) loops over segments inside `deque`. Here the caller loops, and
//! `Phase` holds the position in the RFC's loop. The RFC also resets `first_above_time_` at an empty
//! queue. No call is needed for that here: the last segment of a queue has no bytes behind
//! it, and so it resets `first_above` itself.

use longhaul_units::Time;

/// Verdict of the AQM on a segment taken from the head of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AqmVerdict {
    /// Transmit the segment.
    Keep,
    /// Drop the segment, and decide on the next one at once.
    Drop,
}

/// CoDel state of a queue.
#[derive(Debug, Clone)]
pub struct CoDel {
    target: Time,
    interval: Time,
    /// Backlog in bytes up to which nothing is dropped.
    mtu: u64,
    phase: Phase,
    /// Time at which the delay has been above the target for an interval: `first_above_time_` of the RFC.
    first_above: Option<Time>,
    drop_next: Time,
    /// Drops in this dropping state, or a count that resumes the last one's drop rate (see
    /// `enter_dropping`).
    count: u32,
    /// `count` at the entry to this dropping state: `lastcount_` of the RFC.
    count_at_entry: u32,
}

/// Position in the RFC's `deque`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Outside the dropping state.
    NotDropping,
    /// After the first drop of the dropping state. The RFC sends the next segment without a check.
    FirstDrop,
    /// Between two drops of the dropping state.
    Dropping,
    /// After a later drop of the dropping state. The next segment sets the time of the next drop.
    LaterDrop,
}

impl CoDel {
    /// CoDel for a new queue. While no more than `mtu` bytes wait, nothing is dropped.
    #[must_use]
    pub fn new(target: Time, interval: Time, mtu: u32) -> Self {
        Self {
            target,
            interval,
            mtu: u64::from(mtu),
            phase: Phase::NotDropping,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            count_at_entry: 0,
        }
    }

    /// Takes the parameters of another CoDel, and keeps the state.
    pub fn retune(&mut self, other: &Self) {
        (self.target, self.interval, self.mtu) = (other.target, other.interval, other.mtu);
    }

    /// Decides on the segment just taken from the head, which waited for `sojourn` and has `backlog`
    /// bytes behind it. After a drop, call it for the next segment at once.
    pub fn decide(&mut self, now: Time, sojourn: Time, backlog: u64) -> AqmVerdict {
        let ok_to_drop = self.ok_to_drop(now, sojourn, backlog);
        match self.phase {
            Phase::NotDropping if ok_to_drop => self.enter_dropping(now),
            Phase::NotDropping => AqmVerdict::Keep,
            Phase::FirstDrop => self.change_phase(Phase::Dropping, AqmVerdict::Keep),
            Phase::Dropping | Phase::LaterDrop if !ok_to_drop => {
                self.change_phase(Phase::NotDropping, AqmVerdict::Keep)
            }
            Phase::Dropping => self.drop_when_due(now),
            Phase::LaterDrop => {
                self.drop_next = self.control_law(self.drop_next);
                self.drop_when_due(now)
            }
        }
    }

    /// Whether the delay has been above the target for an interval: `ok_to_drop_` of RFC 8289 §5.6.
    fn ok_to_drop(&mut self, now: Time, sojourn: Time, backlog: u64) -> bool {
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

    /// Enters the dropping state with a drop (RFC 8289 §5.5). If the last dropping state ended less
    /// than 16 intervals ago, its drop rate is a better start than one drop an interval.
    fn enter_dropping(&mut self, now: Time) -> AqmVerdict {
        let delta = self.count - self.count_at_entry;
        let recent = now.since(self.drop_next) < self.interval * 16;
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.count_at_entry = self.count;
        self.drop_next = self.control_law(now);
        self.change_phase(Phase::FirstDrop, AqmVerdict::Drop)
    }

    /// Drops the segment if the time of the next drop has come.
    fn drop_when_due(&mut self, now: Time) -> AqmVerdict {
        if now < self.drop_next {
            return self.change_phase(Phase::Dropping, AqmVerdict::Keep);
        }
        self.count += 1;
        self.change_phase(Phase::LaterDrop, AqmVerdict::Drop)
    }

    /// Returns the time of the drop after one at `from` (RFC 8289 §5.3). The time between drops falls
    /// as 1/√count, so that throughput falls linearly in time.
    fn control_law(&self, from: Time) -> Time {
        from + Time::from_secs_f64(self.interval.as_secs_f64() / f64::from(self.count).sqrt())
    }

    fn change_phase(&mut self, phase: Phase, verdict: AqmVerdict) -> AqmVerdict {
        self.phase = phase;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Time {
        Time::from_millis(count)
    }

    fn codel() -> CoDel {
        CoDel::new(ms(5), ms(100), 1500)
    }

    #[test]
    fn keeps_a_burst_shorter_than_an_interval() {
        let mut codel = codel();
        for t in 0..=99 {
            assert_eq!(codel.decide(ms(t), ms(50), 90_000), AqmVerdict::Keep);
        }
        assert_eq!(codel.decide(ms(100), ms(4), 90_000), AqmVerdict::Keep);
        assert_eq!(codel.decide(ms(101), ms(50), 90_000), AqmVerdict::Keep);
    }

    #[test]
    fn drops_one_after_an_interval_above_the_target() {
        let mut codel = codel();
        codel.decide(ms(0), ms(5), 90_000);
        assert_eq!(codel.decide(ms(99), ms(5), 90_000), AqmVerdict::Keep);
        assert_eq!(codel.decide(ms(100), ms(5), 90_000), AqmVerdict::Drop);
        assert_eq!(codel.decide(ms(100), ms(5), 90_000), AqmVerdict::Keep);
    }

    #[test]
    fn keeps_all_while_an_mtu_or_less_waits() {
        let mut codel = codel();
        for t in 0..500 {
            assert_eq!(codel.decide(ms(t), ms(50), 1500), AqmVerdict::Keep);
        }
    }

    #[test]
    fn resumes_the_drop_rate_after_a_short_pause() {
        let mut codel = codel();
        let drops = |codel: &mut CoDel, span: std::ops::Range<u64>| -> Vec<u64> {
            span.filter(|t| codel.decide(ms(*t), ms(50), 90_000) == AqmVerdict::Drop)
                .collect()
        };
        let first = drops(&mut codel, 0..1000);
        codel.decide(ms(1000), ms(1), 90_000);
        let second = drops(&mut codel, 1001..1300);
        assert!(first[1] - first[0] > 90, "{first:?}");
        assert!(second[1] - second[0] < 50, "{second:?}");
    }
}
