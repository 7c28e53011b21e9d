// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rate that many senders share, each of which knows nothing of the others but one number: when the line is free again.
//!
//! It is the generic cell rate algorithm (ITU-T I.371, annex A, virtual scheduling) as a leaky bucket: who sends takes the
//! line for as long as his bytes take at his rate, from when it is free, and waits for that. So nobody is starved, what one
//! leaves another takes, and together they send no more than the largest of their rates.

use longhaul_units::{BitRate, Time};

/// How far behind the line may be free: what nobody used is lost beyond that. A burst of so long at the full rate.
const BURST: Time = Time::from_millis(20);

/// The line can't be taken longer ahead than that, or than [`WAITING_MAX`] takes; more is what another time, or another
/// clock, has left behind.
const AHEAD_MAX: Time = Time::from_secs(60);

/// Bytes of all who may wait at a time: 64 KiB each of the 256 streams of four copies.
const WAITING_MAX: u64 = 4 * 256 * (64 << 10);

/// Takes the line for `bytes` at `rate`: when they may be sent, and when it is free after that.
#[must_use]
pub fn take(now: Time, free: Time, rate: BitRate, bytes: u64) -> (Time, Time) {
    let believed = match free.since(now) <= AHEAD_MAX.max(rate.time_for(WAITING_MAX)) {
        true => free,
        false => now,
    };
    let begins = believed.max(Time::from_nanos(
        now.as_nanos().saturating_sub(BURST.as_nanos()),
    ));
    (begins, begins + rate.time_for(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bits(8_000_000);

    #[test]
    fn two_who_always_have_something_share_the_rate() {
        let (mut free, mut sent) = (Time::ZERO, [0_u64; 2]);
        let mut next = [Time::ZERO; 2];
        while next[0].min(next[1]) < Time::from_secs(10) {
            let who = usize::from(next[1] < next[0]);
            let (begins, then) = take(next[who], free, RATE, 64_000);
            free = then;
            sent[who] += 64_000;
            next[who] = next[who].max(begins);
        }
        // 1 MB a second for 10 s, and what may go in a burst.
        let all = sent[0] + sent[1];
        assert!((10_000_000..10_200_000).contains(&all), "{all}");
        assert!(sent[0].abs_diff(sent[1]) <= 128_000, "{sent:?}");
    }

    #[test]
    fn as_many_as_there_can_be_wait_at_a_rate_for_one() {
        let (rate, now, mut free) = (BitRate::from_bits(1_000_000), Time::ZERO, Time::ZERO);
        for _ in 0..1024 {
            free = take(now, free, rate, 64 << 10).1;
        }
        assert_eq!(free, rate.time_for(64 << 20));
    }

    #[test]
    fn what_was_not_used_is_lost_but_for_a_burst() {
        let now = Time::from_secs(100);
        let (begins, free) = take(now, Time::from_secs(1), RATE, 1000);
        assert_eq!(now.since(begins), BURST);
        assert_eq!(free.since(begins), Time::from_millis(1));
    }

    #[test]
    fn a_line_that_is_taken_for_hours_is_of_another_time() {
        let now = Time::from_secs(100);
        let (begins, _) = take(now, Time::from_secs(10_000), RATE, 1000);
        assert_eq!(begins, now);
    }
}
