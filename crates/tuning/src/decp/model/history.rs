// SPDX-License-Identifier: MIT OR Apache-2.0
//! State kept for each connection from sample to sample.

use super::sample::{Observation, Sample};
use longhaul_units::Time;
use std::collections::HashMap;

/// Share of the cap below which a window may belong to an idle connection.
pub(super) const IDLE_WINDOW_SHARE: f64 = 0.9;
/// Round trips without growth of such a window after which the connection is idle.
const IDLE_ROUNDS: u64 = 5;

/// Connections of the last sample; one that is absent from a sample is dropped.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<u64, ConnectionHistory>);

#[derive(Debug, Clone, Copy)]
struct ConnectionHistory {
    delivered: u32,
    retransmits: u32,
    /// Largest recent window, and the time since which it has not grown.
    largest_window: (u32, Time),
    /// Whether the controller ended slow start, not a loss: the connection would have filled the link.
    slow_start_ended: bool,
}

impl History {
    /// Adds a sample; returns the bytes delivered and the segments retransmitted since the last.
    pub(super) fn update(&mut self, now: Time, all: &[Observation]) -> (u64, u32) {
        let (mut bytes, mut losses) = (0, 0);
        let mut known = HashMap::with_capacity(all.len());
        for observation in all {
            let before = self.0.get(&observation.id);
            if let Some(before) = before {
                let delivered = observation
                    .delivered_segments
                    .wrapping_sub(before.delivered);
                bytes += u64::from(delivered) * u64::from(observation.mss_bytes);
                losses += observation.retransmits.wrapping_sub(before.retransmits);
            }
            known.insert(
                observation.id,
                ConnectionHistory::of(now, observation, before),
            );
        }
        self.0 = known;
        (bytes, losses)
    }

    /// Whether the connection has left room below its cap for a long time.
    pub(super) fn is_idle(&self, at: Sample, observation: &Observation) -> bool {
        let known = self.0.get(&observation.id);
        known.is_some_and(|known| at.has_elapsed(known.largest_window.1, IDLE_ROUNDS))
    }

    /// Marks connections in slow start: the controller ends it now.
    pub(super) fn end_slow_start(&mut self, bulk: &[&Observation]) {
        for observation in bulk {
            if let Some(known) = self.0.get_mut(&observation.id) {
                known.slow_start_ended = observation.slow_start;
            }
        }
    }

    /// Whether the controller ended slow start of a connection that has lost nothing since.
    pub(super) fn has_ended_slow_start(&self) -> bool {
        self.0.values().any(|known| known.slow_start_ended)
    }
}

impl ConnectionHistory {
    fn of(now: Time, observation: &Observation, before: Option<&Self>) -> Self {
        let is_below_cap = observation.cap.is_some_and(|cap| {
            f64::from(observation.window_segments) < f64::from(cap) * IDLE_WINDOW_SHARE
        });
        let has_not_grown = |reached: &(u32, Time)| {
            is_below_cap && observation.window_segments <= reached.0.saturating_add(reached.0 / 16)
        };
        let reached = before
            .map(|before| before.largest_window)
            .filter(has_not_grown);
        Self {
            delivered: observation.delivered_segments,
            retransmits: observation.retransmits,
            largest_window: reached.unwrap_or((observation.window_segments, now)),
            slow_start_ended: before
                .is_some_and(|b| b.slow_start_ended && b.retransmits == observation.retransmits),
        }
    }
}
