// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is remembered of each connection from look to look.

use super::look::{Moment, Observation};
use longhaul_units::Time;
use std::collections::HashMap;

/// A window below this share of its cap …
pub(super) const IDLE: f64 = 0.9;
/// … that has not grown for so many round trips has no use for more.
const IDLE_ROUNDS: u64 = 5;

/// All connections of the last look; one that a look lacks is forgotten.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<u64, Known>);

#[derive(Debug, Clone, Copy)]
struct Known {
    delivered: u32,
    retransmits: u32,
    /// The largest window of late, and since when it has not grown.
    reached: (u32, Time),
    /// Whether its slow start was ended by the law and not by a loss: it would have filled the link.
    stopped: bool,
}

impl Memory {
    /// Takes a look in; returns bytes delivered and segments sent again since the last.
    pub(super) fn learn(&mut self, now: Time, all: &[Observation]) -> (u64, u32) {
        let (mut bytes, mut losses) = (0, 0);
        let mut known = HashMap::with_capacity(all.len());
        for seen in all {
            let before = self.0.get(&seen.id);
            if let Some(before) = before {
                let delivered = seen.delivered_segments.wrapping_sub(before.delivered);
                bytes += u64::from(delivered) * u64::from(seen.mss_bytes);
                losses += seen.retransmits.wrapping_sub(before.retransmits);
            }
            known.insert(seen.id, Known::of(now, seen, before));
        }
        self.0 = known;
        (bytes, losses)
    }

    /// Whether it has left room below its cap for long.
    pub(super) fn is_idle(&self, at: Moment, seen: &Observation) -> bool {
        let known = self.0.get(&seen.id);
        known.is_some_and(|known| at.is_past(known.reached.1, IDLE_ROUNDS))
    }

    /// Slow start ends here for those that are in it.
    pub(super) fn stop(&mut self, bulk: &[&Observation]) {
        for seen in bulk {
            if let Some(known) = self.0.get_mut(&seen.id) {
                known.stopped = seen.slow_start;
            }
        }
    }

    /// Whether there is one that was stopped and has lost nothing since.
    pub(super) fn has_stopped(&self) -> bool {
        self.0.values().any(|known| known.stopped)
    }
}

impl Known {
    fn of(now: Time, seen: &Observation, before: Option<&Self>) -> Self {
        let has_room = seen
            .cap
            .is_some_and(|cap| f64::from(seen.window_segments) < f64::from(cap) * IDLE);
        let rests = |reached: &(u32, Time)| {
            has_room && seen.window_segments <= reached.0.saturating_add(reached.0 / 16)
        };
        let reached = before.map(|before| before.reached).filter(rests);
        Self {
            delivered: seen.delivered_segments,
            retransmits: seen.retransmits,
            reached: reached.unwrap_or((seen.window_segments, now)),
            stopped: before.is_some_and(|b| b.stopped && b.retransmits == seen.retransmits),
        }
    }
}
