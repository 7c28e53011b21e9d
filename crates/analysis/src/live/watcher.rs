// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampler thread of an interface: decodes packets and sends a snapshot of its flows each second.

use super::look::{Look, SECOND, Watch};
use crate::capture::Tap;
use anyhow::Result;
use longhaul_flow::decode::decode;
use longhaul_linux::{
    clock,
    packet_ring::{BLOCK_TIMEOUT, Ring},
    wait::Bell,
};
use longhaul_units::Time;
use std::sync::mpsc::SyncSender;

/// Time after the end of a second in which its last packets still arrive through the ring.
const LAG: Time = Time::from_millis(2 * BLOCK_TIMEOUT.as_nanos() / 1_000_000);

/// Maximum number of ring blocks before the next check of the clock and the stop request.
const BLOCKS_AT_ONCE: usize = 64;

pub(super) struct Watcher {
    ring: Ring,
    interface: usize,
    watch: Watch,
    looks: SyncSender<Look>,
    told_to_end: Bell,
    space: Vec<u8>,
}

impl Watcher {
    pub(super) fn of(
        tap: Tap,
        interface: usize,
        looks: SyncSender<Look>,
        told_to_end: Bell,
    ) -> Self {
        Self {
            ring: tap.ring,
            interface,
            watch: Watch::of(interface),
            looks,
            told_to_end,
            space: Vec::new(),
        }
    }

    /// Runs until it is stopped, the receiver is gone, or an error occurs.
    pub(super) fn run(mut self) -> Result<()> {
        let mut end = wall_ns() / SECOND + 1;
        loop {
            self.drain();
            self.ring.check()?;
            let now = wall_ns();
            if now >= due(end) {
                // After a pause of this process or a jump of the clock, this covers several seconds.
                end = now.saturating_sub(LAG.as_nanos()) / SECOND;
                if !self.tell(end)? {
                    return Ok(());
                }
                end += 1;
            }
            let left = Time::from_nanos(due(end).saturating_sub(wall_ns()).min(SECOND));
            if self.told_to_end.wait(std::iter::once(&self.ring), left)? {
                return Ok(());
            }
        }
    }

    fn drain(&mut self) {
        let link_type = self.ring.link_type();
        for _ in 0..BLOCKS_AT_ONCE {
            let Some(block) = self.ring.next_block() else {
                return;
            };
            for packet in block.packets() {
                let frame = packet.frame(self.interface as u32, link_type, &mut self.space);
                // Packets other than TCP have no flow.
                if let Ok((key, segment)) = decode(&frame) {
                    self.watch.segment(&key, &segment);
                }
            }
        }
    }

    /// Sends the snapshots up to `end`. Returns false if the receiver is gone.
    fn tell(&mut self, end: u64) -> Result<bool> {
        let dropped = self.ring.counts()?.dropped;
        let mut looks = self.watch.look(end, dropped).into_iter();
        Ok(looks.all(|look| self.looks.send(look).is_ok()))
    }
}

fn wall_ns() -> u64 {
    clock::wall().as_nanos()
}

/// Returns the time from which the second before `end` is complete, ns since 1970.
const fn due(end: u64) -> u64 {
    end * SECOND + LAG.as_nanos()
}
