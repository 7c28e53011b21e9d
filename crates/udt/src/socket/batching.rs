// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batching delays: the thread sleeps briefly so that several packets are received, and sent, with one system call.

use longhaul_units::Time;

/// Maximum delay: a millisecond. Linux bounds the bursts of TCP to the same time (tcp_output.c, `tcp_tso_autosize`).
pub(super) const DELAY_MAX: Time = Time::from_millis(1);
/// Maximum length of a received batch in bytes. More would not fit into a socket buffer of Linux's default
/// `net.core.rmem_max` (208 KiB, of which the overhead of small buffers takes more than half).
const BATCH_LEN_MAX: u64 = 64 << 10;
/// Minimum number of bytes received per [`DELAY_MAX`] for which a delay pays: a rate of 32 Mbit/s. At a lower rate, a
/// delay would only slow down requests and replies on a short path.
const BATCH_LEN_MIN: u64 = 4 << 10;

/// Returns the interval whose packets are sent as one batch, at the rate of `bytes` per `elapsed`. It is at most
/// [`DELAY_MAX`] and [`BATCH_LEN_MAX`] long. A queue on the path that is shorter than a batch drops part of it.
pub(super) fn send_delay(bytes: usize, elapsed: Time) -> Time {
    let bytes = (bytes as u64).max(1);
    Time::from_nanos(elapsed.as_nanos().saturating_mul(BATCH_LEN_MAX) / bytes).min(DELAY_MAX)
}

/// Returns the delay before the next receive call, at the rate of `bytes` per `elapsed`. `None` if that rate is too low
/// for a delay.
pub(super) fn receive_delay(bytes: usize, elapsed: Time) -> Option<Time> {
    let bytes_per_delay =
        (bytes as u64).saturating_mul(DELAY_MAX.as_nanos()) / elapsed.as_nanos().max(1);
    (bytes_per_delay >= BATCH_LEN_MIN).then(|| send_delay(bytes, elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the delay for a packet each `interval_us`.
    fn receive_delay_at(interval_us: u64) -> Option<Time> {
        receive_delay(1472, Time::from_micros(interval_us))
    }

    #[test]
    fn delays_a_millisecond_or_until_a_batch_is_full() {
        assert_eq!(receive_delay_at(40), Some(DELAY_MAX), "300 Mbit/s");
        let at_1_gbit = receive_delay_at(12).unwrap();
        assert_eq!(at_1_gbit, Time::from_nanos(12_000 * 65_536 / 1472));
        assert!(
            receive_delay_at(1).unwrap() < Time::from_micros(45),
            "12 Gbit/s"
        );
        assert_eq!(receive_delay(usize::MAX, Time::ZERO), Some(Time::ZERO));
    }

    #[test]
    fn does_not_delay_slow_packets() {
        assert_eq!(receive_delay_at(400), None);
        assert_eq!(
            receive_delay(8 * 64, Time::from_millis(1)),
            None,
            "requests and replies"
        );
        assert_eq!(receive_delay(0, Time::from_millis(1)), None);
    }

    #[test]
    fn send_delay_is_the_time_of_a_batch() {
        assert_eq!(send_delay(0, Time::from_micros(3)), DELAY_MAX);
        assert_eq!(send_delay(125_000, DELAY_MAX), Time::from_nanos(524_288));
    }
}
