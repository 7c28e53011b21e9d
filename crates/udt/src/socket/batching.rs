// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a thread rests so that packets come together, and go together, instead of waking it one by one.

use longhaul_units::Time;

/// A rest at most, as Linux has for the trains that TCP hands over (tcp_output.c, `tcp_tso_autosize`: a millisecond's).
pub(super) const DELAY_MAX: Time = Time::from_millis(1);
/// What may come in a rest: more would not fit into a socket's buffer where `net.core.rmem_max` is what Linux begins with
/// (208 KiB, of which small pieces of memory take more than half).
const BATCH_LEN_MAX: u64 = 64 << 10;
/// What comes in the longest rest where one is worth it, 32 Mbit/s. What asks and answers on a short path would only wait.
const BATCH_LEN_MIN: u64 = 4 << 10;

/// What was due within so long goes together, where `bytes` went in the time `elapsed`. A path whose queue is shorter loses some.
pub(super) fn send_delay(bytes: usize, elapsed: Time) -> Time {
    let bytes = (bytes as u64).max(1);
    Time::from_nanos(elapsed.as_nanos().saturating_mul(BATCH_LEN_MAX) / bytes).min(DELAY_MAX)
}

/// How long packets are let come, if they come fast enough: `bytes` came in the time `elapsed`.
pub(super) fn receive_delay(bytes: usize, elapsed: Time) -> Option<Time> {
    let in_longest =
        (bytes as u64).saturating_mul(DELAY_MAX.as_nanos()) / elapsed.as_nanos().max(1);
    (in_longest >= BATCH_LEN_MIN).then(|| send_delay(bytes, elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of one packet each so many µs.
    fn receive_delay_at(interval_us: u64) -> Option<Time> {
        receive_delay(1472, Time::from_micros(interval_us))
    }

    #[test]
    fn a_rest_is_a_millisecond_or_what_a_socket_holds() {
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
    fn what_comes_slowly_is_taken_at_once() {
        assert_eq!(receive_delay_at(400), None);
        assert_eq!(
            receive_delay(8 * 64, Time::from_millis(1)),
            None,
            "questions and answers"
        );
        assert_eq!(receive_delay(0, Time::from_millis(1)), None);
    }

    #[test]
    fn what_is_due_within_a_rest_goes_together() {
        assert_eq!(send_delay(0, Time::from_micros(3)), DELAY_MAX);
        assert_eq!(send_delay(125_000, DELAY_MAX), Time::from_nanos(524_288));
    }
}
