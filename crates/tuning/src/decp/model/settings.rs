// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be chosen.

use longhaul_units::Ratio;

/// What may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// h: the queue that capped connections leave standing, as a share of what the wire holds.
    pub headroom: Ratio,
    /// No cap goes below so many segments.
    pub floor_segments: u32,
    /// Cap also when all are even, and to what the link carries: they then share without losses, and
    /// grow only as the link has room.
    pub hold: bool,
    /// Fill windows that losses have made small by slow start, as soon as the link has drained: up to
    /// the equal share of what it carried before. Only for a link that nobody else uses, since it
    /// leaves other traffic no room that the connections once had. Implies `hold`.
    pub refill: bool,
}

impl Settings {
    /// Whether caps stay when all are even.
    pub(super) fn keeps(&self) -> bool {
        self.hold || self.refill
    }
}

impl Default for Settings {
    /// 10 %: on a path of 1 Gbit/s and 350 ms a queue of 4.4 MB; ten segments, an initial window
    /// (RFC 6928).
    fn default() -> Self {
        Self {
            headroom: Ratio::new(0.1).expect("a share"),
            floor_segments: 10,
            hold: false,
            refill: false,
        }
    }
}
