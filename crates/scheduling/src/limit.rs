// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rate limit that many senders share. They share one number: the time at which the line is free again.
//!
//! The algorithm is the generic cell rate algorithm (ITU-T I.371, annex A, virtual scheduling), a leaky bucket. A
//! sender reserves the line for as long as its bytes take at its own rate. The reservation starts when the line is
//! free, and the sender waits until then. So no sender starves, and each can use the capacity that others leave.
//! Together they send no more than the largest of their rates.

use longhaul_units::{BitRate, Time};

/// Longest time in the past at which a reservation may start. A sender that was idle may send a burst this long at
/// the full rate. Capacity that was unused earlier is lost.
const BURST: Time = Time::from_millis(20);

/// Longest time in the future for which the line may be reserved, unless [`WAITING_BYTES_MAX`] takes longer. A later
/// time is stale or of another clock, and is ignored.
const RESERVED_MAX: Time = Time::from_secs(60);

/// Bytes of all senders that may wait at a time: 64 KiB for each of the 256 streams of four copies.
const WAITING_BYTES_MAX: u64 = 4 * 256 * (64 << 10);

/// Reservation of the line for one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Time at which the bytes may be sent. It may be in the past.
    pub start: Time,
    /// Time at which the line is free again.
    pub end: Time,
}

/// Reserves the line for `bytes` at `rate`. `line_free_at` is the end of the last reservation.
#[must_use]
pub fn reserve(now: Time, line_free_at: Time, rate: BitRate, bytes: u64) -> Reservation {
    let ahead_max = RESERVED_MAX.max(rate.time_for(WAITING_BYTES_MAX));
    let line_free_at = if line_free_at.since(now) <= ahead_max {
        line_free_at
    } else {
        now
    };
    let burst_start = Time::from_nanos(now.as_nanos().saturating_sub(BURST.as_nanos()));
    let start = line_free_at.max(burst_start);
    Reservation {
        start,
        end: start + rate.time_for(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bits(8_000_000);

    #[test]
    fn two_busy_senders_share_the_rate() {
        let (mut line_free_at, mut sent_bytes) = (Time::ZERO, [0_u64; 2]);
        let mut next_send = [Time::ZERO; 2];
        while next_send[0].min(next_send[1]) < Time::from_secs(10) {
            let sender = usize::from(next_send[1] < next_send[0]);
            let reservation = reserve(next_send[sender], line_free_at, RATE, 64_000);
            line_free_at = reservation.end;
            sent_bytes[sender] += 64_000;
            next_send[sender] = next_send[sender].max(reservation.start);
        }
        // 1 MB a second for 10 s, and a burst.
        let total = sent_bytes[0] + sent_bytes[1];
        assert!((10_000_000..10_200_000).contains(&total), "{total}");
        assert!(
            sent_bytes[0].abs_diff(sent_bytes[1]) <= 128_000,
            "{sent_bytes:?}"
        );
    }

    #[test]
    fn a_low_rate_queues_as_many_senders_as_may_wait() {
        let (rate, now, mut line_free_at) = (BitRate::from_bits(1_000_000), Time::ZERO, Time::ZERO);
        for _ in 0..1024 {
            line_free_at = reserve(now, line_free_at, rate, 64 << 10).end;
        }
        assert_eq!(line_free_at, rate.time_for(64 << 20));
    }

    #[test]
    fn unused_capacity_is_lost_except_for_a_burst() {
        let now = Time::from_secs(100);
        let reservation = reserve(now, Time::from_secs(1), RATE, 1000);
        assert_eq!(now.since(reservation.start), BURST);
        assert_eq!(
            reservation.end.since(reservation.start),
            Time::from_millis(1)
        );
    }

    #[test]
    fn ignores_a_reservation_that_ends_hours_ahead() {
        let now = Time::from_secs(100);
        let reservation = reserve(now, Time::from_secs(10_000), RATE, 1000);
        assert_eq!(reservation.start, now);
    }
}
