// SPDX-License-Identifier: MIT OR Apache-2.0
//! A smoothed round trip and the time-out that follows from it (RFC 6298 §2), as far as a tap can tell.

/// Linux's least time-out, and what it adds to the round trip at least (`TCP_RTO_MIN`,
/// `include/net/tcp.h`): no sender in use is quicker, though RFC 6298 asks for a second.
const RTO_MIN_NS: u64 = 200_000_000;

/// SRTT and RTTVAR between the tap and one end; both 0 without a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    srtt_ns: u64,
    rttvar_ns: u64,
}

impl RoundTrip {
    /// Takes a sample in (RFC 6298 §2.2, §2.3).
    #[inline]
    pub(crate) fn sample(&mut self, rtt_ns: u64) {
        // A day is no round trip, and keeps the sums below from overflow.
        let rtt_ns = rtt_ns.min(86_400_000_000_000);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns, rtt_ns / 2);
        } else {
            let error = self.srtt_ns.abs_diff(rtt_ns);
            self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
            self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt_ns / 8;
        }
    }

    /// From one end to the other and back: the tap lies between both.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            srtt_ns: self.srtt_ns + other.srtt_ns,
            rttvar_ns: self.rttvar_ns + other.rttvar_ns,
        }
    }

    /// SRTT, if there is any.
    pub(crate) fn srtt_ns(self) -> Option<u64> {
        (self.srtt_ns > 0).then_some(self.srtt_ns)
    }

    /// The shortest silence that can be a time-out.
    pub(crate) fn timeout_min_ns(self) -> u64 {
        RTO_MIN_NS.max(self.srtt_ns + 4 * self.rttvar_ns)
    }

    /// A silence that can hardly be anything else.
    pub(crate) fn timeout_sure_ns(self) -> u64 {
        self.srtt_ns + RTO_MIN_NS.max(4 * self.rttvar_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_sample_is_srtt() {
        let mut rtt = RoundTrip::default();
        assert_eq!((rtt.srtt_ns(), rtt.timeout_min_ns()), (None, 200 * MS));
        rtt.sample(100 * MS);
        assert_eq!(rtt.srtt_ns(), Some(100 * MS));
        assert_eq!(rtt.timeout_min_ns(), 300 * MS);
    }

    #[test]
    fn a_steady_path_leaves_the_least_time_out() {
        let mut rtt = RoundTrip::default();
        (0..100).for_each(|_| rtt.sample(100 * MS));
        assert_eq!(rtt.timeout_min_ns(), 200 * MS);
        let sure = rtt.timeout_sure_ns();
        assert!((300 * MS - sure) < MS, "{sure}");
    }

    #[test]
    fn absurd_samples_do_no_harm() {
        let mut rtt = RoundTrip::default();
        (0..9).for_each(|_| rtt.sample(u64::MAX));
        assert!(rtt.joined(rtt).timeout_sure_ns() > 0);
    }
}
