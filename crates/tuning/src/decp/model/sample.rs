// SPDX-License-Identifier: MIT OR Apache-2.0
//! One sample: its time, the connections observed, sums over them, and the controller's estimate.

use longhaul_units::Time;

/// One connection in one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Identifier of the connection.
    pub id: u64,
    /// Window: the smaller of the congestion window and the receiver's, segments. While the
    /// congestion window is being reduced, its value after the reduction.
    pub window_segments: u32,
    /// Receiver's window, segments: no higher cap makes the window larger.
    pub window_max_segments: u32,
    /// Whether the window doubles each round trip.
    pub slow_start: bool,
    /// Bytes of a segment.
    pub mss_bytes: u32,
    /// Segments delivered since the connection began; may wrap around.
    pub delivered_segments: u32,
    /// Segments retransmitted since the connection began; may wrap around.
    pub retransmits: u32,
    /// Smoothed round-trip time.
    pub rtt: Time,
    /// Minimum round-trip time of the path.
    pub rtt_min: Time,
    /// Present cap, segments.
    pub cap: Option<u32>,
    /// Whether the connection had data in flight or waiting most of the time since the last sample. Others are
    /// neither slow nor fast.
    pub bulk: bool,
}

impl Observation {
    /// Returns r: bytes a second that the window allows on an empty path.
    pub(super) fn rate(&self) -> f64 {
        self.rate_of(self.window_segments)
    }

    /// Converts segments per round trip to bytes a second.
    pub(super) fn rate_of(&self, segments: u32) -> f64 {
        f64::from(segments) * f64::from(self.mss_bytes) / self.rtt_min.as_secs_f64()
    }

    pub(super) fn segments_at(&self, rate: f64) -> f64 {
        rate * self.rtt_min.as_secs_f64() / f64::from(self.mss_bytes)
    }

    /// Returns the segments that the window reaches without a further change: the window, or a higher cap in slow start.
    pub(super) fn committed_segments(&self) -> u32 {
        let cap = self.cap.filter(|_| self.slow_start).unwrap_or(0);
        self.window_segments.max(cap)
    }

    pub(super) fn committed(&self) -> f64 {
        self.rate_of(self.committed_segments())
    }

    pub(super) fn is_measured(&self) -> bool {
        self.bulk && self.rtt_min > Time::ZERO && self.mss_bytes > 0 && self.window_segments > 0
    }
}

/// Time of a sample, and the changes since the previous one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) now: Time,
    /// Longest of the connections' minimum round-trip times.
    pub(super) rtt: Time,
    /// Round trips since the last sample, at most one.
    pub(super) rounds: f64,
    /// Segments retransmitted since the last sample.
    pub(super) losses: u32,
}

impl Sample {
    /// Whether at least `rounds` round trips have elapsed since `since`.
    pub(super) fn has_elapsed(&self, since: Time, rounds: u64) -> bool {
        self.now.since(since) >= self.rtt * rounds
    }
}

/// Returns the longest of the connections' minimum round-trip times.
pub(super) fn round_trip(bulk: &[&Observation]) -> Time {
    bulk.iter()
        .map(|observation| observation.rtt_min)
        .max()
        .unwrap_or(Time::ZERO)
}

/// Returns Σ rᵢ, bytes a second.
pub(super) fn total_rate(bulk: &[&Observation]) -> f64 {
    bulk.iter().map(|observation| observation.rate()).sum()
}

/// Returns q: the data queued in buffers, as a share of the BDP.
pub(super) fn queue(bulk: &[&Observation]) -> f64 {
    let in_flight: f64 = bulk
        .iter()
        .map(|o| o.rate() * o.rtt_min.as_secs_f64())
        .sum();
    let waiting = |o: &&Observation| o.rate() * o.rtt.since(o.rtt_min).as_secs_f64();
    let queue: f64 = bulk.iter().map(waiting).sum();
    if in_flight > 0.0 {
        queue / in_flight
    } else {
        0.0
    }
}

/// Returns the ratio of the fastest rate to the slowest; 1 for fewer than two.
pub(super) fn spread(rates: impl Iterator<Item = f64>) -> f64 {
    let (mut min, mut max, mut count) = (f64::INFINITY, 0.0_f64, 0);
    for rate in rates {
        (min, max, count) = (min.min(rate), max.max(rate), count + 1);
    }
    if count < 2 { 1.0 } else { max / min }
}

/// Whether caps are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// No connection is capped.
    #[default]
    Open,
    /// Caps make the rates equal.
    Level,
}

/// Controller's estimate of the link after a sample, and its phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimate {
    /// Whether caps are in use.
    pub phase: Phase,
    /// Connections that send in bulk.
    pub bulk: usize,
    /// Ĉ, bytes a second.
    pub capacity: f64,
    /// Newest delivery rate of all connections together, bytes a second.
    pub delivered: f64,
    /// L, bytes a second; infinite where there is none.
    pub level: f64,
    /// q: queue as a share of the BDP.
    pub queue: f64,
    /// h at present.
    pub headroom: f64,
    /// Ratio of the fastest rate to the slowest; 1 for fewer than two connections.
    pub spread: f64,
}
