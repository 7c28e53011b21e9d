// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rate that many senders share. Each knows nothing of the others but one number: the time when the line is free
//! again.
//!
//! The algorithm is the generic cell rate algorithm (ITU-T I.371, annex A, virtual scheduling), a leaky bucket. A
//! sender reserves the line for as long as its bytes take at its own rate. The reservation begins when the line is
//! free, and the sender waits until then. So no sender starves, and each can use the capacity that others leave.
//! Together they send no more than the largest of their rates.

use longhaul_units::{BitRate, Time};

/// Longest time in the past from which unused capacity still counts. A burst at the full rate lasts this long; older
/// capacity is lost.
const BURST: Time = Time::from_millis(20);

/// Longest time in the future for which the line may be reserved, unless [`WAITING_BYTES_MAX`] takes longer. A later
/// time is stale or of another clock, and is ignored.
const RESERVED_MAX: Time = Time::from_secs(60);

/// Bytes of all senders that may wait at a time: 64 KiB for each of the 256 streams of four copies.
const WAITING_BYTES_MAX: u64 = 4 * 256 * (64 << 10);

/// Reserves the line for `bytes` at `rate`. `free` is the time when the reservation before this one ends. Returns the
/// time when the bytes may be sent, and the time when the line is free after them.
#[must_use]
pub fn take(now: Time, free: Time, rate: BitRate, bytes: u64) -> (Time, Time) {
    let plausible_free = match free.since(now) <= RESERVED_MAX.max(rate.time_for(WAITING_BYTES_MAX))
    {
        true => free,
        false => now,
    };
    let begins = plausible_free.max(Time::from_nanos(
        now.as_nanos().saturating_sub(BURST.as_nanos()),
    ));
    (begins, begins + rate.time_for(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bits(8_000_000);

    #[test]
    fn two_busy_senders_share_the_rate() {
        let (mut free, mut sent) = (Time::ZERO, [0_u64; 2]);
        let mut next = [Time::ZERO; 2];
        while next[0].min(next[1]) < Time::from_secs(10) {
            let sender = usize::from(next[1] < next[0]);
            let (begins, free_after) = take(next[sender], free, RATE, 64_000);
            free = free_after;
            sent[sender] += 64_000;
            next[sender] = next[sender].max(begins);
        }
        // 1 MB a second for 10 s, and a burst.
        let all = sent[0] + sent[1];
        assert!((10_000_000..10_200_000).contains(&all), "{all}");
        assert!(sent[0].abs_diff(sent[1]) <= 128_000, "{sent:?}");
    }

    #[test]
    fn queues_all_senders_that_may_wait_at_a_low_rate() {
        let (rate, now, mut free) = (BitRate::from_bits(1_000_000), Time::ZERO, Time::ZERO);
        for _ in 0..1024 {
            free = take(now, free, rate, 64 << 10).1;
        }
        assert_eq!(free, rate.time_for(64 << 20));
    }

    #[test]
    fn unused_capacity_is_lost_except_for_a_burst() {
        let now = Time::from_secs(100);
        let (begins, free) = take(now, Time::from_secs(1), RATE, 1000);
        assert_eq!(now.since(begins), BURST);
        assert_eq!(free.since(begins), Time::from_millis(1));
    }

    #[test]
    fn ignores_a_reservation_hours_ahead() {
        let now = Time::from_secs(100);
        let (begins, _) = take(now, Time::from_secs(10_000), RATE, 1000);
        assert_eq!(begins, now);
    }
}
