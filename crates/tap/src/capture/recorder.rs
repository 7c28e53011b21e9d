// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorder: the thread of an interface that writes the packets of the ring to the file.

use super::{counters::InterfaceCounters, output::Output, source::InterfaceRing};
use anyhow::Result;
use longhaul_linux::{
    clock,
    packet_ring::{BLOCK_TIMEOUT, Packet, Ring},
    wait::Waker,
};
use longhaul_packet::capture::writer;
use longhaul_units::Time;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes collected before they are written; less than the smallest size limit of a file.
const WRITE_LEN: usize = 256 << 10;
/// Maximum number of ring blocks before the next check for the stop request: packets may arrive as fast as they are
/// written.
const BLOCKS_PER_CHECK: usize = 64;
/// Maximum interval between reads of the kernel's counters.
const COUNTER_INTERVAL: Time = Time::from_millis(500);

/// Number of packets that may still be written, over all interfaces.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    pub(super) fn new(packets: Option<u64>) -> Self {
        Self(AtomicU64::new(packets.unwrap_or(u64::MAX)))
    }

    /// Takes one packet from the budget. Returns false if it is used up.
    #[allow(deprecated)] // Rust 1.95 has a new name for `fetch_update`, which the oldest supported Rust lacks.
    fn take(&self) -> bool {
        let decremented = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Relaxed, Relaxed, decremented).is_ok()
    }

    fn is_used_up(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

/// State that all recorders share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) counters: Arc<[InterfaceCounters]>,
    pub(super) budget: Arc<Budget>,
}

/// Recorder of an interface. Its memory is the ring and one buffer.
pub(super) struct Recorder {
    ring: Ring,
    pending: PendingBlocks,
    shared: Shared,
    stop: Waker,
}

/// Blocks that are not written yet.
struct PendingBlocks {
    interface: u32,
    snaplen: usize,
    blocks: Vec<u8>,
    /// Buffer for a frame whose VLAN tag is inserted again.
    scratch: Vec<u8>,
    packets: u64,
    wire_segments: u64,
}

impl Recorder {
    pub(super) fn new(
        ring: InterfaceRing,
        interface: u32,
        snaplen: u32,
        shared: Shared,
        stop: Waker,
    ) -> Self {
        Self {
            ring: ring.ring,
            pending: PendingBlocks {
                interface,
                snaplen: snaplen as usize,
                blocks: Vec::with_capacity(2 * WRITE_LEN),
                scratch: Vec::new(),
                packets: 0,
                wire_segments: 0,
            },
            shared,
            stop,
        }
    }

    /// Records until it is stopped, the budget is used up, or an error occurs.
    pub(super) fn run(mut self) -> Result<()> {
        let result = self.capture();
        // Packets that arrived before the end are written, whatever the reason for the end.
        let drained = self
            .drain_until_idle()
            .and_then(|()| self.update_counters());
        result.and(drained)
    }

    fn capture(&mut self) -> Result<()> {
        loop {
            self.write_released_blocks()?;
            self.ring.check()?;
            self.update_counters()?;
            let stop_requested = self
                .stop
                .wait(std::iter::once(&self.ring), COUNTER_INTERVAL)?;
            if stop_requested || self.shared.budget.is_used_up() {
                return Ok(());
            }
        }
    }

    /// Writes the packets that are still in the ring. The kernel releases its current block after a timeout; no packet
    /// arrives after that.
    fn drain_until_idle(&mut self) -> Result<()> {
        self.ring.stop_capture()?;
        let end = clock::now() + BLOCK_TIMEOUT + BLOCK_TIMEOUT;
        loop {
            let may_have_more = self.write_released_blocks()?;
            let left = end.since(clock::now());
            if !may_have_more && left == Time::ZERO {
                return Ok(());
            }
            if !may_have_more {
                self.stop.wait(std::iter::once(&self.ring), left)?;
            }
        }
    }

    /// Writes the blocks that the kernel has released. Returns whether there may be more.
    fn write_released_blocks(&mut self) -> Result<bool> {
        let link_type = self.ring.link_type();
        for _ in 0..BLOCKS_PER_CHECK {
            let Some(block) = self.ring.next_block() else {
                self.pending.write(&self.shared)?;
                return Ok(false);
            };
            for packet in block.packets() {
                if self.shared.budget.take() {
                    self.pending.append(&packet, link_type);
                }
                if self.pending.blocks.len() >= WRITE_LEN {
                    self.pending.write(&self.shared)?;
                }
            }
        }
        self.pending.write(&self.shared)?;
        Ok(true)
    }

    fn update_counters(&mut self) -> Result<()> {
        let counts = self.ring.counts()?;
        self.shared.counters[self.pending.interface as usize].set_kernel_counters(counts);
        Ok(())
    }
}

impl PendingBlocks {
    fn append(&mut self, packet: &Packet<'_>, link_type: longhaul_packet::capture::LinkType) {
        let mut frame = packet.frame(self.interface, link_type, &mut self.scratch);
        // With the VLAN tag inserted, the frame must not exceed the file's snap length.
        frame.bytes = &frame.bytes[..frame.bytes.len().min(self.snaplen)];
        writer::packet(&mut self.blocks, &frame, packet.direction);
        self.packets += 1;
        self.wire_segments += u64::from(packet.wire_segments());
    }

    fn write(&mut self, shared: &Shared) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let output = shared.output.lock();
        // A thread that panicked wrote complete blocks only.
        output
            .unwrap_or_else(PoisonError::into_inner)
            .write(&self.blocks)?;
        shared.counters[self.interface as usize].add_written(self.packets, self.wire_segments);
        self.blocks.clear();
        (self.packets, self.wire_segments) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_used_up_once() {
        let budget = Budget::new(Some(2));
        assert_eq!([budget.take(), budget.is_used_up()], [true, false]);
        assert_eq!([budget.take(), budget.is_used_up()], [true, true]);
        assert!(!budget.take());
        assert!(Budget::new(None).take());
    }
}
