// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the law makes of a look.

use longhaul_units::Time;

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
