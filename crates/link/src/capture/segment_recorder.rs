// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorder of the segments of one direction, before its queue and at its end. It runs in the forwarding loop and fills
//! buffers with records.

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

/// Records the segments of one direction, and submits the records in buffers.
pub(crate) struct SegmentRecorder {
    direction: Direction,
    full: SyncSender<FullBuffer>,
    /// Buffers that the writer has emptied.
    spare: Receiver<RecordBuffer>,
    /// Buffers allocated so far.
    allocated: usize,
    buffers_max: usize,
    buffer: Option<RecordBuffer>,
    /// Time when the buffer was first seen with records in it.
    filling_since: Option<Time>,
    /// Packet number and header index of the super-packet whose arrival was recorded last in this buffer.
    last_arrival: Option<(u64, u32)>,
    /// Packet number and header index of the super-packet whose departure was recorded last in this buffer.
    last_departure: Option<(u64, u32)>,
    dropped_records: DroppedRecords,
    /// Scratch space for corrupt segments.
    corrupt_buffer: Vec<u8>,
}

impl SegmentRecorder {
    pub(super) fn new(
        direction: Direction,
        full: SyncSender<FullBuffer>,
        spare: Receiver<RecordBuffer>,
        buffers_max: usize,
    ) -> Self {
        Self {
            direction,
            full,
            spare,
            allocated: 0,
            buffers_max,
            buffer: None,
            filling_since: None,
            last_arrival: None,
            last_departure: None,
            dropped_records: DroppedRecords::default(),
            corrupt_buffer: Vec::new(),
        }
    }

    /// Records a segment that arrived and has a verdict; `packets` still has it.
    pub(crate) fn record_arrival(&mut self, verdict: &SegmentVerdict, packets: &PacketRing) {
        self.make_room();
        let Some(buffer) = &mut self.buffer else {
            self.dropped_records.arrivals += 1;
            return;
        };
        let head = shared_headers(
            &mut self.last_arrival,
            buffer,
            verdict.segment.packet,
            packets,
        );
        buffer.push(SegmentRecord::arrival(verdict, head));
    }

    /// Records a segment that departed; `packets` still has it.
    pub(crate) fn record_departure(&mut self, out: &Delivered, packets: &PacketRing) {
        self.make_room();
        let Some(buffer) = &mut self.buffer else {
            self.dropped_records.departures += 1;
            return;
        };
        let head = match out.corrupt {
            None => shared_headers(
                &mut self.last_departure,
                buffer,
                out.segment.packet,
                packets,
            ),
            Some(entropy) => {
                corrupt_headers(&mut self.corrupt_buffer, buffer, out, entropy, packets)
            }
        };
        buffer.push(SegmentRecord::departure(out, head));
    }

    /// Returns the numbers of dropped records.
    pub(crate) fn dropped_records(&self) -> DroppedRecords {
        self.dropped_records
    }

    /// Returns the time by which [`flush`](Self::flush) must be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.filling_since.map(|since| since + FILL_TIME_MAX)
    }

    /// Submits a buffer that has been filling for long enough. Call it in each turn of the loop.
    pub(crate) fn flush(&mut self, now: Time) {
        match self.deadline() {
            Some(deadline) if deadline <= now => self.submit(),
            None if self
                .buffer
                .as_ref()
                .is_some_and(|buffer| !buffer.is_empty()) =>
            {
                self.filling_since = Some(now);
            }
            _ => {}
        }
    }

    /// Provides a buffer with room for one more record, or none if all buffers wait for the disk.
    #[inline]
    fn make_room(&mut self) {
        if self.buffer.as_ref().is_none_or(RecordBuffer::is_full) {
            self.submit();
            self.buffer = self.take_spare();
        }
    }

    fn take_spare(&mut self) -> Option<RecordBuffer> {
        if let Ok(spare) = self.spare.try_recv() {
            return Some(spare);
        }
        let may_allocate = self.allocated < self.buffers_max;
        self.allocated += usize::from(may_allocate);
        may_allocate.then(RecordBuffer::new)
    }

    fn submit(&mut self) {
        self.filling_since = None;
        self.last_arrival = None;
        self.last_departure = None;
        if let Some(buffer) = self.buffer.take() {
            let direction = self.direction;
            // The channel has room for all buffers; it is closed only if the writer has panicked.
            drop(self.full.try_send(FullBuffer { direction, buffer }));
        }
    }
}

impl Drop for SegmentRecorder {
    fn drop(&mut self) {
        self.submit();
    }
}

/// Returns the index of a super-packet's headers. Its segments share them as long as no other packet comes between.
fn shared_headers(
    last: &mut Option<(u64, u32)>,
    buffer: &mut RecordBuffer,
    packet: u64,
    packets: &PacketRing,
) -> u32 {
    match *last {
        Some((number, head)) if number == packet => head,
        _ => {
            let (stored, bytes) = packets.get(packet);
            let head = buffer.add_packet_headers(stored.layout, &bytes[vnet::LEN..]);
            *last = Some((packet, head));
            head
        }
    }
}

fn corrupt_headers(
    scratch: &mut Vec<u8>,
    buffer: &mut RecordBuffer,
    out: &Delivered,
    entropy: u32,
    packets: &PacketRing,
) -> u32 {
    let (stored, bytes) = packets.get(out.segment.packet);
    let packet = &bytes[vnet::LEN..];
    stored
        .layout
        .corrupt_into(packet, out.segment.index, entropy, scratch);
    let headers = stored.layout.headers_len(packet);
    buffer.add_segment_headers(&scratch[vnet::LEN..][..headers], out.segment.len)
}
