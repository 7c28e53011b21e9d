// SPDX-License-Identifier: MIT OR Apache-2.0
//! S, divided: who is cut to what, and who is filled.

use super::{
    level::level,
    look::{Moment, Observation, asked},
};

/// What moves from the fast to the slow in a round trip, as a share of S.
const SHIFT: f64 = 0.2;
/// What has been taken and not yet been filled up elsewhere is at most this share of S.
const OWED: f64 = 0.1;
/// A connection above the level by less than this is let be.
const ABOVE: f64 = 1.02;
/// Caps move by at least this share, and a segment.
const STEP: f64 = 0.005;

/// A cap to be set, moved (`Some`) or lifted (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub id: u64,
    /// Segments.
    pub cap: Option<u32>,
    /// Whether the window is to grow up to the cap by slow start, wherever it is.
    pub fill: bool,
}

impl Change {
    pub(super) fn lift(seen: &Observation) -> Self {
        Self {
            id: seen.id,
            cap: None,
            fill: false,
        }
    }
}

/// What each is to have at one look. Rates in bytes a second.
#[derive(Debug)]
pub(super) struct Division {
    /// L.
    pub(super) level: f64,
    /// Where the fast are cut for now.
    cut: f64,
    /// The share of what they lack that the slow get now.
    granted: f64,
    floor_segments: u32,
}

impl Division {
    /// Divides `sum` among those that would have `demands`. Nobody is filled while losses are answered.
    pub(super) fn new(
        at: Moment,
        bulk: &[&Observation],
        mut demands: Vec<f64>,
        sum: f64,
        is_quiet: bool,
        floor_segments: u32,
    ) -> Self {
        let shift = sum * SHIFT * at.rounds;
        let level = level(&mut demands, sum);
        let needs: f64 = bulk.iter().map(|seen| need(level, seen)).sum();
        let committed: f64 = bulk.iter().map(|seen| seen.committed()).sum();
        let free = (sum - committed).clamp(0.0, shift);
        Self {
            level,
            cut: cut(bulk, sum, shift).max(level),
            granted: if is_quiet && needs > 0.0 {
                (free / needs).min(1.0)
            } else {
                0.0
            },
            floor_segments,
        }
    }

    /// What this is for a connection; none where it may stay as it is.
    pub(super) fn change(&self, seen: &Observation) -> Option<Change> {
        if !seen.is_measured() {
            return seen.cap.map(|_| Change::lift(seen));
        }
        let level = seen.segments_at(self.level);
        if !level.is_finite() || level >= f64::from(u32::MAX >> 8) {
            return None;
        }
        if f64::from(seen.window_segments) > level.ceil() * ABOVE {
            return self.lower(seen);
        }
        self.raise(seen)
    }

    fn lower(&self, seen: &Observation) -> Option<Change> {
        let cap = self.bounded(seen.segments_at(self.cut).ceil() as u32, seen);
        let before = seen.cap.unwrap_or(u32::MAX);
        is_moved(before, cap).then_some(Change {
            id: seen.id,
            cap: Some(cap),
            fill: false,
        })
    }

    /// Slow start goes no further than what is granted, whoever began it.
    fn raise(&self, seen: &Observation) -> Option<Change> {
        let grant = seen.segments_at(need(self.level, seen) * self.granted);
        let before = seen.committed_segments();
        let cap = before.saturating_add(grant as u32);
        let is_loose = seen.slow_start && seen.cap.is_none();
        (is_loose || is_moved(before, cap)).then_some(Change {
            id: seen.id,
            cap: Some(cap.max(self.floor_segments)),
            fill: !is_loose,
        })
    }

    fn bounded(&self, segments: u32, seen: &Observation) -> u32 {
        segments.min(seen.window_segments).max(self.floor_segments)
    }
}

/// The level that takes `shift` from the fastest, beside what exceeds the sum.
fn cut(bulk: &[&Observation], sum: f64, shift: f64) -> f64 {
    let mut rates: Vec<f64> = bulk.iter().map(|seen| seen.rate()).collect();
    let left = asked(bulk).min(sum) - shift;
    level(&mut rates, left.max(sum * (1.0 - OWED)))
}

/// What a connection lacks to the level, beyond what it was promised.
fn need(level: f64, seen: &Observation) -> f64 {
    let most = level.min(seen.rate_of(seen.window_max_segments));
    (most - seen.committed()).max(0.0)
}

fn is_moved(before: u32, cap: u32) -> bool {
    f64::from(cap.abs_diff(before)) >= (f64::from(before) * STEP).max(1.0)
}
