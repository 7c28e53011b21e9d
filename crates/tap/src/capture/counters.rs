// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of an interface: written by its recorder, read by the progress display.

use longhaul_linux::packet_ring::Counts;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that only grow. Each is exact, but they are not read at the same instant.
#[derive(Debug, Default)]
pub(super) struct InterfaceCounters {
    packets: AtomicU64,
    wire_segments: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    ring_full: AtomicU64,
}

/// Values of [`InterfaceCounters`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct CounterSnapshot {
    /// Packets written; a super-packet counts once.
    pub(super) packets: u64,
    /// Packets written, counted as on the wire.
    pub(super) wire_segments: u64,
    /// Packets that passed the filter, including dropped ones.
    pub(super) received: u64,
    /// Packets that the kernel dropped because the ring was full.
    pub(super) dropped: u64,
    /// Number of times that the ring was full.
    pub(super) ring_full: u64,
}

impl InterfaceCounters {
    pub(super) fn add_written(&self, packets: u64, wire_segments: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.wire_segments.fetch_add(wire_segments, Relaxed);
    }

    pub(super) fn set_kernel_counters(&self, counts: Counts) {
        self.received.store(counts.received, Relaxed);
        self.dropped.store(counts.dropped, Relaxed);
        self.ring_full.store(counts.freezes, Relaxed);
    }

    pub(super) fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot {
            packets: self.packets.load(Relaxed),
            wire_segments: self.wire_segments.load(Relaxed),
            received: self.received.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            ring_full: self.ring_full.load(Relaxed),
        }
    }
}
