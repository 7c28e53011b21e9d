// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was counted on an interface: written by its recorder, read by whoever tells of it.

use longhaul_linux::packet_ring::Counts;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that only grow. Each is right by itself; they need not be of one moment.
#[derive(Debug, Default)]
pub(super) struct Tally {
    packets: AtomicU64,
    wire_segments: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    freezes: AtomicU64,
}

/// What a [`Tally`] had at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counted {
    /// Packets that were written, a super-packet once.
    pub(super) packets: u64,
    /// The same as they were on the wire.
    pub(super) wire_segments: u64,
    /// Packets that passed the filter, dropped ones among them.
    pub(super) received: u64,
    /// Those that the kernel had no room for.
    pub(super) dropped: u64,
    /// How often the ring was full.
    pub(super) ring_full: u64,
}

impl Tally {
    pub(super) fn written(&self, packets: u64, wire_segments: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.wire_segments.fetch_add(wire_segments, Relaxed);
    }

    pub(super) fn kernel_says(&self, counts: Counts) {
        self.received.store(counts.received, Relaxed);
        self.dropped.store(counts.dropped, Relaxed);
        self.freezes.store(counts.freezes, Relaxed);
    }

    pub(super) fn now(&self) -> Counted {
        Counted {
            packets: self.packets.load(Relaxed),
            wire_segments: self.wire_segments.load(Relaxed),
            received: self.received.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            ring_full: self.freezes.load(Relaxed),
        }
    }
}
