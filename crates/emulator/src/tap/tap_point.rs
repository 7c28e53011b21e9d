// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap points of one direction, before its queue and at its end, on the pump's side.

use super::{
    super::{
        counters::{Direction, DroppedRecords},
        packet_ring::PacketRing,
    },
    record_buffer::{FILL_TIME_MAX, FullBuffer, RecordBuffer, SegmentRecord},
};
use longhaul_netem::{Delivered, SegmentVerdict};
use longhaul_packet::vnet;
use longhaul_units::Time;
use std::sync::mpsc::{Receiver, SyncSender};

/// Takes notes, and hands them on block by block.
pub(crate) struct TapPoint {
    direction: Direction,
    full: SyncSender<FullBuffer>,
    /// Blocks that are written.
    spare: Receiver<RecordBuffer>,
    /// How many blocks there are, and may be.
    allocated: usize,
    buffers_max: usize,
    block: Option<RecordBuffer>,
    /// When the block was first looked at with something in it.
    filling_since: Option<Time>,
    /// Where the block has the headers of the super-packet that was noted last.
    arriving: Option<(u64, u32)>,
    departing: Option<(u64, u32)>,
    dropped_records: DroppedRecords,
    /// Scratch space for damaged segments.
    corrupt_buffer: Vec<u8>,
}

impl TapPoint {
    pub(super) fn new(
        direction: Direction,
        full: SyncSender<FullBuffer>,
        spare: Receiver<RecordBuffer>,
        most: usize,
    ) -> Self {
        Self {
            direction,
            full,
            spare,
            allocated: 0,
            buffers_max: most,
            block: None,
            filling_since: None,
            arriving: None,
            departing: None,
            dropped_records: DroppedRecords::default(),
            corrupt_buffer: Vec::new(),
        }
    }

    /// A segment came, and its fate is settled; the store still has it.
    pub(crate) fn record_arrival(&mut self, judged: &SegmentVerdict, store: &PacketRing) {
        self.make_room();
        let Some(block) = &mut self.block else {
            self.dropped_records.arrivals += 1;
            return;
        };
        let head = shared_headers(&mut self.arriving, block, judged.segment.packet, store);
        block.push(SegmentRecord::arrival(judged, head));
    }

    /// A segment is out; the store still has it.
    pub(crate) fn record_departure(&mut self, out: &Delivered, store: &PacketRing) {
        self.make_room();
        let Some(block) = &mut self.block else {
            self.dropped_records.departures += 1;
            return;
        };
        let head = match out.corrupt {
            None => shared_headers(&mut self.departing, block, out.segment.packet, store),
            Some(entropy) => corrupt_headers(&mut self.corrupt_buffer, block, out, entropy, store),
        };
        block.push(SegmentRecord::departure(out, head));
    }

    /// What could not be noted.
    pub(crate) fn dropped_records(&self) -> DroppedRecords {
        self.dropped_records
    }

    /// When [`flush`](Self::flush) must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.filling_since.map(|since| since + FILL_TIME_MAX)
    }

    /// Hands on a block that has been filling for long enough. Call it each turn.
    pub(crate) fn flush(&mut self, now: Time) {
        match self.deadline() {
            Some(deadline) if deadline <= now => self.submit(),
            None if self.block.as_ref().is_some_and(|block| !block.is_empty()) => {
                self.filling_since = Some(now);
            }
            _ => {}
        }
    }

    /// Leaves a block with room for one more note, or none if all wait for the disk.
    #[inline]
    fn make_room(&mut self) {
        if self.block.as_ref().is_none_or(RecordBuffer::is_full) {
            self.submit();
            self.block = self.take_spare();
        }
    }

    fn take_spare(&mut self) -> Option<RecordBuffer> {
        if let Ok(spare) = self.spare.try_recv() {
            return Some(spare);
        }
        let more = self.allocated < self.buffers_max;
        self.allocated += usize::from(more);
        more.then(RecordBuffer::new)
    }

    fn submit(&mut self) {
        self.filling_since = None;
        self.arriving = None;
        self.departing = None;
        if let Some(block) = self.block.take() {
            let direction = self.direction;
            // The ring has room for all blocks; it is gone only when the scribe has panicked.
            drop(self.full.try_send(FullBuffer {
                direction,
                buffer: block,
            }));
        }
    }
}

impl Drop for TapPoint {
    fn drop(&mut self) {
        self.submit();
    }
}

/// The headers of a super-packet, which its segments share as long as no other comes between.
fn shared_headers(
    last: &mut Option<(u64, u32)>,
    block: &mut RecordBuffer,
    packet: u64,
    store: &PacketRing,
) -> u32 {
    match *last {
        Some((number, head)) if number == packet => head,
        _ => {
            let (held, bytes) = store.get(packet);
            let head = block.add_packet_headers(held.layout, &bytes[vnet::LEN..]);
            *last = Some((packet, head));
            head
        }
    }
}

fn corrupt_headers(
    scratch: &mut Vec<u8>,
    block: &mut RecordBuffer,
    out: &Delivered,
    entropy: u32,
    store: &PacketRing,
) -> u32 {
    let (held, bytes) = store.get(out.segment.packet);
    let packet = &bytes[vnet::LEN..];
    held.layout
        .corrupt_into(packet, out.segment.index, entropy, scratch);
    let headers = held.layout.headers_len(packet);
    block.add_segment_headers(&scratch[vnet::LEN..][..headers], out.segment.len)
}
