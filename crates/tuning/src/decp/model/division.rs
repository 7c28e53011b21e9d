// SPDX-License-Identifier: MIT OR Apache-2.0
//! Division of S, the sum of the rates, among the connections: which are capped, and which may grow.
//! [`super`] defines S and L.

use super::{
    level::level,
    sample::{Observation, Sample, total_rate},
};

/// Largest rate that is taken from fast connections or given to slow ones in a round, as a share of S.
const SHIFT_MAX: f64 = 0.2;
/// Largest rate that fast connections have lost and slow ones do not use yet, as a share of S.
const UNUSED_MAX: f64 = 0.1;
/// Ratio of a window to the level up to which a faster connection is left alone.
const TOLERANCE: f64 = 1.02;
/// Smallest change of a cap, as a share of it; at least one segment.
const CAP_CHANGE_MIN: f64 = 0.005;

/// Change of a cap: set or moved (`Some`), or lifted (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Connection: its [`Observation::id`].
    pub id: u64,
    /// New cap in segments.
    pub cap: Option<u32>,
    /// Whether the window grows up to the cap by slow start, also after a loss has reduced it.
    pub slow_start_to_cap: bool,
}

impl Change {
    pub(super) fn lift(observation: &Observation) -> Self {
        Self {
            id: observation.id,
            cap: None,
            slow_start_to_cap: false,
        }
    }
}

/// Division among the connections after one sample. Rates are in bytes a second.
#[derive(Debug)]
pub(super) struct Division {
    /// L: the rate above which connections are capped.
    pub(super) level: f64,
    /// Rate to which fast connections are capped now. It is L or more, because each round takes at most a
    /// fifth of S from them.
    cap_rate: f64,
    /// Share of their deficit that slow connections get now.
    granted_share: f64,
    cap_min_segments: u32,
}

impl Division {
    /// Divides `sum` among connections with these `demands`. `is_quiet` says that nothing was lost in the last
    /// round; otherwise no connection may grow.
    pub(super) fn new(
        sample: Sample,
        bulk: &[&Observation],
        mut demands: Vec<f64>,
        sum: f64,
        is_quiet: bool,
        cap_min_segments: u32,
    ) -> Self {
        let shift_max = sum * SHIFT_MAX * sample.rounds;
        let level = level(&mut demands, sum);
        let total_deficit: f64 = bulk
            .iter()
            .map(|observation| deficit(level, observation))
            .sum();
        let committed: f64 = bulk.iter().map(|observation| observation.committed()).sum();
        let free_rate = (sum - committed).clamp(0.0, shift_max);
        Self {
            level,
            cap_rate: cap_rate(bulk, sum, shift_max).max(level),
            granted_share: if is_quiet && total_deficit > 0.0 {
                (free_rate / total_deficit).min(1.0)
            } else {
                0.0
            },
            cap_min_segments,
        }
    }

    /// Returns the change of a connection's cap; `None` if it stays unchanged.
    pub(super) fn change(&self, observation: &Observation) -> Option<Change> {
        if !observation.is_measured() {
            return observation.cap.map(|_| Change::lift(observation));
        }
        let level = observation.segments_at(self.level);
        if !level.is_finite() || level >= f64::from(u32::MAX >> 8) {
            return None;
        }
        if f64::from(observation.window_segments) > level.ceil() * TOLERANCE {
            return self.lower(observation);
        }
        self.raise(observation)
    }

    fn lower(&self, observation: &Observation) -> Option<Change> {
        let cap = self.clamp_cap(
            observation.segments_at(self.cap_rate).ceil() as u32,
            observation,
        );
        let before = observation.cap.unwrap_or(u32::MAX);
        is_significant_change(before, cap).then_some(Change {
            id: observation.id,
            cap: Some(cap),
            slow_start_to_cap: false,
        })
    }

    /// Raises a cap by the granted rate. A connection in slow start without a cap gets one.
    fn raise(&self, observation: &Observation) -> Option<Change> {
        let grant = observation.segments_at(deficit(self.level, observation) * self.granted_share);
        let before = observation.committed_segments();
        let cap = before.saturating_add(grant as u32);
        let is_uncapped_slow_start = observation.slow_start && observation.cap.is_none();
        (is_uncapped_slow_start || is_significant_change(before, cap)).then_some(Change {
            id: observation.id,
            cap: Some(cap.max(self.cap_min_segments)),
            slow_start_to_cap: !is_uncapped_slow_start,
        })
    }

    fn clamp_cap(&self, segments: u32, observation: &Observation) -> u32 {
        segments
            .min(observation.window_segments)
            .max(self.cap_min_segments)
    }
}

/// Returns the rate to which the fastest connections are capped. Together they lose `shift_max`, and what all
/// connections have beyond `sum`. Together all connections keep at least `sum` × (1 − [`UNUSED_MAX`]).
fn cap_rate(bulk: &[&Observation], sum: f64, shift_max: f64) -> f64 {
    let mut rates: Vec<f64> = bulk.iter().map(|observation| observation.rate()).collect();
    let remaining = total_rate(bulk).min(sum) - shift_max;
    level(&mut rates, remaining.max(sum * (1.0 - UNUSED_MAX)))
}

/// Returns the rate that a connection lacks to reach the level. What was granted to it before does not count as
/// lacking.
fn deficit(level: f64, observation: &Observation) -> f64 {
    let rate_max = level.min(observation.rate_of(observation.window_max_segments));
    (rate_max - observation.committed()).max(0.0)
}

/// Whether the difference of two caps is large enough for a change.
fn is_significant_change(before: u32, cap: u32) -> bool {
    f64::from(cap.abs_diff(before)) >= (f64::from(before) * CAP_CHANGE_MIN).max(1.0)
}
