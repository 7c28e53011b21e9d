// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of an interface: packets become segments, segments become a look each second.

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

/// After the end of a second, its last packets are still on the way through the ring.
const LAG: Time = Time::from_millis(2 * BLOCK_TIMEOUT.as_nanos() / 1_000_000);

/// Blocks of the ring before it looks up, at the clock and for the end.
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

    /// Until it is told to end, nobody listens any more, or something fails.
    pub(super) fn run(mut self) -> Result<()> {
        let mut end = wall_ns() / SECOND + 1;
        loop {
            self.drain();
            self.ring.check()?;
            let now = wall_ns();
            if now >= due(end) {
                // After a stop of this process, or a leap of the clock, several at once.
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
                // What is no TCP has no flow.
                if let Ok((key, segment)) = decode(&frame) {
                    self.watch.segment(&key, &segment);
                }
            }
        }
    }

    /// Whether anybody listens.
    fn tell(&mut self, end: u64) -> Result<bool> {
        let dropped = self.ring.counts()?.dropped;
        let mut looks = self.watch.look(end, dropped).into_iter();
        Ok(looks.all(|look| self.looks.send(look).is_ok()))
    }
}

fn wall_ns() -> u64 {
    clock::wall().as_nanos()
}

/// When the second before `end` can be told.
const fn due(end: u64) -> u64 {
    end * SECOND + LAG.as_nanos()
}
