// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look: when it is, what is seen of the connections, one by one and together, and what the law makes of it.

use longhaul_units::Time;

/// One connection at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Names the connection.
    pub id: u64,
    /// Its window: the smaller of the congestion window and the receiver's, segments. While the
    /// congestion window is being reduced, the one that it will have then.
    pub window_segments: u32,
    /// The receiver's window, segments: the window gets no larger by a higher cap.
    pub window_max_segments: u32,
    /// Whether the window doubles each round trip.
    pub slow_start: bool,
    /// Bytes of a segment.
    pub mss_bytes: u32,
    /// Segments that have arrived since it began; may wrap around.
    pub delivered_segments: u32,
    /// Segments sent again since it began; may wrap around.
    pub retransmits: u32,
    /// Smoothed round trip.
    pub rtt: Time,
    /// Least round trip of its path.
    pub rtt_min: Time,
    /// The cap that it has, segments.
    pub cap: Option<u32>,
    /// Whether it had data in flight or waiting most of the time since the last look. Others are
    /// neither slow nor fast.
    pub bulk: bool,
}

impl Observation {
    /// r: bytes a second that the window allows on an empty path.
    pub(super) fn rate(&self) -> f64 {
        self.rate_of(self.window_segments)
    }

    /// What so many segments a round trip are, bytes a second.
    pub(super) fn rate_of(&self, segments: u32) -> f64 {
        f64::from(segments) * f64::from(self.mss_bytes) / self.rtt_min.as_secs_f64()
    }

    pub(super) fn segments_at(&self, rate: f64) -> f64 {
        rate * self.rtt_min.as_secs_f64() / f64::from(self.mss_bytes)
    }

    /// What it goes to without a further order, segments: its window, or a cap that it grows up to.
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

/// When a look is, and what came before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Time,
    /// The longest of the least round trips.
    pub(super) rtt: Time,
    /// Round trips since the last look, at most one.
    pub(super) rounds: f64,
    /// Segments sent again since the last look.
    pub(super) losses: u32,
}

impl Moment {
    /// Whether it is `rounds` round trips since then.
    pub(super) fn is_past(&self, since: Time, rounds: u64) -> bool {
        self.now.since(since) >= self.rtt * rounds
    }
}

/// The longest of the least round trips.
pub(super) fn round_trip(bulk: &[&Observation]) -> Time {
    bulk.iter()
        .map(|seen| seen.rtt_min)
        .max()
        .unwrap_or(Time::ZERO)
}

/// Σ rᵢ.
pub(super) fn asked(bulk: &[&Observation]) -> f64 {
    bulk.iter().map(|seen| seen.rate()).sum()
}

/// q: what stands in buffers, as a share of what the wire holds.
pub(super) fn queue(bulk: &[&Observation]) -> f64 {
    let wire: f64 = bulk
        .iter()
        .map(|o| o.rate() * o.rtt_min.as_secs_f64())
        .sum();
    let waiting = |o: &&Observation| o.rate() * o.rtt.since(o.rtt_min).as_secs_f64();
    let queue: f64 = bulk.iter().map(waiting).sum();
    if wire > 0.0 { queue / wire } else { 0.0 }
}

/// Fastest over slowest of these rates; 1 for fewer than two.
pub(super) fn spread(rates: impl Iterator<Item = f64>) -> f64 {
    let (mut least, mut most, mut count) = (f64::INFINITY, 0.0_f64, 0);
    for rate in rates {
        (least, most, count) = (least.min(rate), most.max(rate), count + 1);
    }
    if count < 2 { 1.0 } else { most / least }
}

/// Whether caps are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nobody is held back.
    #[default]
    Open,
    /// Windows are made even.
    Level,
}

/// What the law makes of a look, for people.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outlook {
    /// Whether caps are in use.
    pub phase: Phase,
    /// Connections that send in bulk.
    pub bulk: usize,
    /// Ĉ, bytes a second.
    pub capacity: f64,
    /// The newest delivery rate of all together, bytes a second.
    pub delivered: f64,
    /// L, bytes a second; infinite where there is none.
    pub level: f64,
    /// q.
    pub queue: f64,
    /// h at present.
    pub headroom: f64,
    /// Fastest over slowest rate; 1 for fewer than two connections.
    pub spread: f64,
}
