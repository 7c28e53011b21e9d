// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of an interface: blocks of the ring become blocks of the file.

use super::{output::Output, source::Tap, tally::Tally};
use anyhow::Result;
use longhaul_linux::{
    clock,
    packet_ring::{BLOCK_TIMEOUT, Packet, Ring},
    wait::Bell,
};
use longhaul_packet::capture::writer;
use longhaul_units::Time;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What is collected before it is written; less than a file may be large.
const BUFFER: usize = 256 << 10;
/// Blocks of the ring before it looks up: where they come as fast as they are written, it must still
/// hear that it is to end.
const BLOCKS_AT_ONCE: usize = 64;
/// How often the kernel is asked for its counts, at least.
const LOOK_EVERY: Time = Time::from_millis(500);

/// How many packets may still be written, on all interfaces.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    pub(super) fn of(packets: Option<u64>) -> Self {
        Self(AtomicU64::new(packets.unwrap_or(u64::MAX)))
    }

    /// Whether there was one more.
    fn take(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }

    fn is_spent(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

/// What all recorders share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) tallies: Arc<[Tally]>,
    pub(super) budget: Arc<Budget>,
}

/// An interface's recorder. Its memory is the ring's and one buffer.
pub(super) struct Recorder {
    ring: Ring,
    sheet: Sheet,
    shared: Shared,
    told_to_end: Bell,
}

/// What is not yet written.
struct Sheet {
    interface: u32,
    snaplen: usize,
    blocks: Vec<u8>,
    /// For a frame whose VLAN tag is put back.
    space: Vec<u8>,
    packets: u64,
    wire_segments: u64,
}

impl Recorder {
    pub(super) fn of(
        tap: Tap,
        interface: u32,
        snaplen: u32,
        shared: Shared,
        told_to_end: Bell,
    ) -> Self {
        Self {
            ring: tap.ring,
            sheet: Sheet {
                interface,
                snaplen: snaplen as usize,
                blocks: Vec::with_capacity(2 * BUFFER),
                space: Vec::new(),
                packets: 0,
                wire_segments: 0,
            },
            shared,
            told_to_end,
        }
    }

    /// Until it is told to end, enough is captured, or something fails.
    pub(super) fn run(mut self) -> Result<()> {
        let ended = self.capture();
        // Whatever ended it: what has come by then is not lost.
        let rest = self.drain_the_rest().and_then(|()| self.count());
        ended.and(rest)
    }

    fn capture(&mut self) -> Result<()> {
        loop {
            self.drain()?;
            self.ring.check()?;
            self.count()?;
            let told = self
                .told_to_end
                .wait(std::iter::once(&self.ring), LOOK_EVERY)?;
            if told || self.shared.budget.is_spent() {
                return Ok(());
            }
        }
    }

    /// The block that is being filled comes when its time is out, and nothing after it.
    fn drain_the_rest(&mut self) -> Result<()> {
        self.ring.close_entrance()?;
        let end = clock::now() + BLOCK_TIMEOUT + BLOCK_TIMEOUT;
        loop {
            let more = self.drain()?;
            let left = end.since(clock::now());
            if !more && left == Time::ZERO {
                return Ok(());
            }
            if !more {
                self.told_to_end.wait(std::iter::once(&self.ring), left)?;
            }
        }
    }

    /// Writes what the kernel has handed over; whether there may be more.
    fn drain(&mut self) -> Result<bool> {
        let link_type = self.ring.link_type();
        for _ in 0..BLOCKS_AT_ONCE {
            let Some(block) = self.ring.next_block() else {
                self.sheet.write(&self.shared)?;
                return Ok(false);
            };
            for packet in block.packets() {
                if self.shared.budget.take() {
                    self.sheet.append(&packet, link_type);
                }
                if self.sheet.blocks.len() >= BUFFER {
                    self.sheet.write(&self.shared)?;
                }
            }
        }
        self.sheet.write(&self.shared)?;
        Ok(true)
    }

    fn count(&mut self) -> Result<()> {
        let counts = self.ring.counts()?;
        self.shared.tallies[self.sheet.interface as usize].kernel_says(counts);
        Ok(())
    }
}

impl Sheet {
    fn append(&mut self, packet: &Packet<'_>, link_type: longhaul_packet::capture::LinkType) {
        let mut frame = packet.frame(self.interface, link_type, &mut self.space);
        // A VLAN tag that was put back must not push it over what the file says.
        frame.bytes = &frame.bytes[..frame.bytes.len().min(self.snaplen)];
        writer::packet(&mut self.blocks, &frame, packet.heading);
        self.packets += 1;
        self.wire_segments += u64::from(packet.wire_segments());
    }

    fn write(&mut self, shared: &Shared) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let output = shared.output.lock();
        // A thread that panicked left whole blocks behind.
        output
            .unwrap_or_else(PoisonError::into_inner)
            .write(&self.blocks)?;
        shared.tallies[self.interface as usize].written(self.packets, self.wire_segments);
        self.blocks.clear();
        (self.packets, self.wire_segments) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once() {
        let budget = Budget::of(Some(2));
        assert_eq!([budget.take(), budget.is_spent()], [true, false]);
        assert_eq!([budget.take(), budget.is_spent()], [true, true]);
        assert!(!budget.take());
        assert!(Budget::of(None).take());
    }
}
