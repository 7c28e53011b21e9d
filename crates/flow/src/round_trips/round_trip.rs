// SPDX-License-Identifier: MIT OR Apache-2.0
//! Smoothed round trip and the timeout derived from it (RFC 6298 §2), as far as a capture point can know them.

/// Least timeout of Linux, and the least that it adds to the round trip (`TCP_RTO_MIN`, `include/net/tcp.h`). RFC 6298
/// requires a second, but no common sender uses a shorter timeout than Linux.
const RTO_MIN_NS: u64 = 200_000_000;
/// Least time that is taken for reordering if part of the round trip is unknown: the value of Wireshark.
const REORDERING_NS: u64 = 3_000_000;

/// SRTT and RTTVAR between the capture point and one end, ns; SRTT is 0 without a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    srtt_ns: u64,
    rttvar_ns: u64,
}

impl RoundTrip {
    /// Adds a sample (RFC 6298 §2.2, §2.3).
    #[inline]
    pub(crate) fn add_sample(&mut self, rtt_ns: u64) {
        // A clamp to one day keeps the sums below from overflow. Beside an end a sample may be 0.
        let rtt_ns = rtt_ns.clamp(1, 86_400_000_000_000);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns, rtt_ns / 2);
        } else {
            let error = self.srtt_ns.abs_diff(rtt_ns);
            self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
            self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt_ns / 8;
        }
    }

    /// Adds the round trip to the other end: the capture point lies between both.
    pub(crate) fn plus(self, other: Self) -> PathRoundTrip {
        PathRoundTrip {
            srtt_ns: self.srtt_ns + other.srtt_ns,
            rttvar_ns: self.rttvar_ns + other.rttvar_ns,
            is_whole: self.srtt_ns > 0 && other.srtt_ns > 0,
        }
    }
}

/// SRTT and RTTVAR between both ends, ns. If only one half is known, they are lower bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathRoundTrip {
    srtt_ns: u64,
    rttvar_ns: u64,
    is_whole: bool,
}

impl PathRoundTrip {
    /// Returns the time within which a late packet counts as reordered. A retransmission takes a whole round trip,
    /// because an ACK must return first.
    pub(crate) fn reordering_ns(self) -> u64 {
        let half = self.srtt_ns / 2;
        if self.is_whole {
            half
        } else {
            half.max(REORDERING_NS)
        }
    }

    /// Returns the shortest silence that can be a timeout, ns.
    pub(crate) fn timeout_min_ns(self) -> u64 {
        RTO_MIN_NS.max(self.srtt_ns + 4 * self.rttvar_ns)
    }

    /// Returns whether a silence is almost certainly a timeout.
    pub(crate) fn is_surely_timeout(self, silence_ns: u64) -> bool {
        self.is_whole && silence_ns >= self.srtt_ns + RTO_MIN_NS.max(4 * self.rttvar_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Round trip between the capture point and an end, from samples in milliseconds.
    fn half(samples_ms: &[u64]) -> RoundTrip {
        let mut rtt = RoundTrip::default();
        samples_ms.iter().for_each(|ms| rtt.add_sample(ms * MS));
        rtt
    }

    #[test]
    fn first_sample_sets_srtt() {
        let path = half(&[100]).plus(half(&[0]));
        assert_eq!(path.timeout_min_ns(), 300 * MS + 1);
        assert_eq!(path.reordering_ns(), 50 * MS);
    }

    #[test]
    fn steady_path_has_minimum_time_out() {
        let path = half(&[100; 100]).plus(half(&[0]));
        assert_eq!(path.timeout_min_ns(), 200 * MS);
        assert_eq!(
            [299, 301].map(|ms| path.is_surely_timeout(ms * MS)),
            [false, true]
        );
    }

    #[test]
    fn known_half_is_lower_bound() {
        let unknown = RoundTrip::default();
        let of = |ms| half(&[ms; 100]).plus(unknown);
        assert_eq!(
            [0, 1, 100].map(|ms| of(ms).reordering_ns()),
            [3 * MS, 3 * MS, 50 * MS]
        );
        assert!(!of(100).is_surely_timeout(3_600_000 * MS));
        let neither = unknown.plus(unknown);
        assert_eq!(neither.timeout_min_ns(), 200 * MS);
        assert_eq!(neither.reordering_ns(), 3 * MS);
    }

    #[test]
    fn huge_samples_do_not_overflow() {
        let mut rtt = RoundTrip::default();
        (0..9).for_each(|_| rtt.add_sample(u64::MAX));
        assert!(rtt.plus(rtt).timeout_min_ns() > 0);
    }
}
