// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap points of one direction, before its queue and at its end, on the pump's side.

use super::{
    super::{
        counters::{Direction, Missed},
        store::Store,
    },
    block::{Block, FILL_MAX, Full, Note},
};
use longhaul_netem::{Delivered, SegmentVerdict};
use longhaul_packet::vnet;
use longhaul_units::Time;
use std::sync::mpsc::{Receiver, SyncSender};

/// Takes notes, and hands them on block by block.
pub(crate) struct Point {
    direction: Direction,
    full: SyncSender<Full>,
    /// Blocks that are written.
    spare: Receiver<Block>,
    /// How many blocks there are, and may be.
    made: usize,
    most: usize,
    block: Option<Block>,
    /// When the block was first looked at with something in it.
    since: Option<Time>,
    /// Where the block has the headers of the super-packet that was noted last.
    arriving: Option<(u64, u32)>,
    departing: Option<(u64, u32)>,
    missed: Missed,
    /// Scratch space for damaged segments.
    damaged: Vec<u8>,
}

impl Point {
    pub(super) fn new(
        direction: Direction,
        full: SyncSender<Full>,
        spare: Receiver<Block>,
        most: usize,
    ) -> Self {
        Self {
            direction,
            full,
            spare,
            made: 0,
            most,
            block: None,
            since: None,
            arriving: None,
            departing: None,
            missed: Missed::default(),
            damaged: Vec::new(),
        }
    }

    /// A segment came, and its fate is settled; the store still has it.
    pub(crate) fn arrived(&mut self, judged: &SegmentVerdict, store: &Store) {
        self.make_room();
        let Some(block) = &mut self.block else {
            self.missed.arrivals += 1;
            return;
        };
        let head = shared(&mut self.arriving, block, judged.segment.packet, store);
        block.push(Note::arrival(judged, head));
    }

    /// A segment is out; the store still has it.
    pub(crate) fn departed(&mut self, out: &Delivered, store: &Store) {
        self.make_room();
        let Some(block) = &mut self.block else {
            self.missed.departures += 1;
            return;
        };
        let head = match out.corrupt {
            None => shared(&mut self.departing, block, out.segment.packet, store),
            Some(entropy) => damaged(&mut self.damaged, block, out, entropy, store),
        };
        block.push(Note::departure(out, head));
    }

    /// What could not be noted.
    pub(crate) fn missed(&self) -> Missed {
        self.missed
    }

    /// When [`flush`](Self::flush) must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.since.map(|since| since + FILL_MAX)
    }

    /// Hands on a block that has been filling for long enough. Call it each turn.
    pub(crate) fn flush(&mut self, now: Time) {
        match self.deadline() {
            Some(deadline) if deadline <= now => self.hand_on(),
            None if self.block.as_ref().is_some_and(|block| !block.is_empty()) => {
                self.since = Some(now);
            }
            _ => {}
        }
    }

    /// Leaves a block with room for one more note, or none if all wait for the disk.
    #[inline]
    fn make_room(&mut self) {
        if self.block.as_ref().is_none_or(Block::is_full) {
            self.hand_on();
            self.block = self.vacant();
        }
    }

    fn vacant(&mut self) -> Option<Block> {
        if let Ok(spare) = self.spare.try_recv() {
            return Some(spare);
        }
        let more = self.made < self.most;
        self.made += usize::from(more);
        more.then(Block::new)
    }

    fn hand_on(&mut self) {
        self.since = None;
        self.arriving = None;
        self.departing = None;
        if let Some(block) = self.block.take() {
            let direction = self.direction;
            // The ring has room for all blocks; it is gone only when the scribe has panicked.
            drop(self.full.try_send(Full { direction, block }));
        }
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        self.hand_on();
    }
}

/// The headers of a super-packet, which its segments share as long as no other comes between.
fn shared(last: &mut Option<(u64, u32)>, block: &mut Block, packet: u64, store: &Store) -> u32 {
    match *last {
        Some((number, head)) if number == packet => head,
        _ => {
            let (held, bytes) = store.get(packet);
            let head = block.put_packet(held.layout, &bytes[vnet::LEN..]);
            *last = Some((packet, head));
            head
        }
    }
}

fn damaged(
    scratch: &mut Vec<u8>,
    block: &mut Block,
    out: &Delivered,
    entropy: u32,
    store: &Store,
) -> u32 {
    let (held, bytes) = store.get(out.segment.packet);
    let packet = &bytes[vnet::LEN..];
    held.layout
        .corrupt_into(packet, out.segment.index, entropy, scratch);
    let headers = held.layout.headers_len(packet);
    block.put_segment(&scratch[vnet::LEN..][..headers], out.segment.len)
}
