// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round-trip time and retransmission time-out, as `tcp_rtt_estimator` (net/ipv4/tcp_input.c).

use longhaul_units::Time;

/// `TCP_RTO_MIN`.
const RTO_MIN: i64 = 200_000_000;
/// `TCP_RTO_MAX`.
const RTO_MAX: u64 = 120_000_000_000;

/// All in nanoseconds; `srtt` is eight times and the deviations are four times what they mean, as
/// in the kernel.
#[derive(Debug)]
pub(crate) struct Rtt {
    srtt: i64,
    mdev: i64,
    mdev_max: i64,
    rttvar: i64,
    min: Time,
    /// The deviation's largest value of a round trip counts when this packet is acknowledged.
    round: u64,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self {
            srtt: 0,
            mdev: 0,
            mdev_max: RTO_MIN,
            rttvar: 0,
            min: Time::MAX,
            round: 0,
        }
    }

    pub(crate) fn smoothed(&self) -> Time {
        Time::from_nanos((self.srtt >> 3) as u64)
    }

    pub(crate) fn min(&self) -> Time {
        self.min
    }

    /// The time-out before any backing off.
    pub(crate) fn time_out(&self) -> Time {
        Time::from_nanos((((self.srtt >> 3) + self.rttvar) as u64).min(RTO_MAX))
    }

    pub(crate) fn note_min(&mut self, rtt: Time) {
        self.min = self.min.min(rtt);
    }

    /// A sample, taken as packets from `una` to `next` are out.
    pub(crate) fn sample(&mut self, rtt: Time, una: u64, next: u64) {
        let m = (rtt.as_nanos() as i64).max(1);
        if self.srtt == 0 {
            self.srtt = m << 3;
            self.mdev = m << 1;
            self.rttvar = self.mdev.max(RTO_MIN);
            self.mdev_max = self.rttvar;
            self.round = next;
            return;
        }
        let error = m - (self.srtt >> 3);
        self.srtt += error;
        self.mdev += deviation_step(error, self.mdev);
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round {
            self.end_round(next);
        }
    }

    fn end_round(&mut self, next: u64) {
        if self.mdev_max < self.rttvar {
            self.rttvar -= (self.rttvar - self.mdev_max) >> 2;
        }
        self.round = next;
        self.mdev_max = RTO_MIN;
    }
}

/// A round trip that gets shorter raises the deviation by an eighth only ("Eifel").
fn deviation_step(error: i64, mdev: i64) -> i64 {
    let step = error.abs() - (mdev >> 2);
    if error < 0 && step > 0 {
        step >> 3
    } else {
        step
    }
}
