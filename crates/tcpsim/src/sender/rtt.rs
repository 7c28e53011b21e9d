// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round-trip time and retransmission timeout, as `tcp_rtt_estimator` (net/ipv4/tcp_input.c).

use longhaul_units::Time;

/// `TCP_RTO_MIN`, nanoseconds.
const RTO_MIN: i64 = 200_000_000;
/// `TCP_RTO_MAX`, nanoseconds.
const RTO_MAX: u64 = 120_000_000_000;

/// Estimator of the round trip, in nanoseconds. As in the kernel, `srtt` holds eight times its value and the
/// deviations hold four times theirs.
#[derive(Debug)]
pub(crate) struct RttEstimator {
    srtt: i64,
    mdev: i64,
    mdev_max: i64,
    rttvar: i64,
    /// Smallest round trip; [`Time::MAX`] before the first.
    min: Time,
    /// Packet whose acknowledgement ends the round. The largest deviation of a round counts at its end.
    round_end: u64,
}

impl RttEstimator {
    pub(crate) fn new() -> Self {
        Self {
            srtt: 0,
            mdev: 0,
            mdev_max: RTO_MIN,
            rttvar: 0,
            min: Time::MAX,
            round_end: 0,
        }
    }

    pub(crate) fn smoothed(&self) -> Time {
        Time::from_nanos((self.srtt >> 3) as u64)
    }

    pub(crate) fn min(&self) -> Time {
        self.min
    }

    /// Returns the timeout without backoff.
    pub(crate) fn timeout(&self) -> Time {
        Time::from_nanos((((self.srtt >> 3) + self.rttvar) as u64).min(RTO_MAX))
    }

    pub(crate) fn update_min(&mut self, rtt: Time) {
        self.min = self.min.min(rtt);
    }

    /// Adds a sample, taken while packets from `una` to `next` are unacknowledged.
    pub(crate) fn add_sample(&mut self, rtt: Time, una: u64, next: u64) {
        let m = (rtt.as_nanos() as i64).max(1);
        if self.srtt == 0 {
            self.srtt = m << 3;
            self.mdev = m << 1;
            self.rttvar = self.mdev.max(RTO_MIN);
            self.mdev_max = self.rttvar;
            self.round_end = next;
            return;
        }
        let error = m - (self.srtt >> 3);
        self.srtt += error;
        self.mdev += deviation_step(error, self.mdev);
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round_end {
            self.end_round(next);
        }
    }

    fn end_round(&mut self, next: u64) {
        if self.mdev_max < self.rttvar {
            self.rttvar -= (self.rttvar - self.mdev_max) >> 2;
        }
        self.round_end = next;
        self.mdev_max = RTO_MIN;
    }
}

/// Returns the change of the deviation. A round trip that gets shorter raises it by an eighth only ("Eifel").
fn deviation_step(error: i64, mdev: i64) -> i64 {
    let step = error.abs() - (mdev >> 2);
    if error < 0 && step > 0 {
        step >> 3
    } else {
        step
    }
}
