// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tap points note: headers once for a super-packet, and a few bytes for each segment.

use super::super::counters::Direction;
use longhaul_netem::{Delivered, Drop, SegmentVerdict};
use longhaul_packet::{
    capture::{EmulatorRecord, Verdict},
    super_packet::SuperPacket,
};
use longhaul_units::Time;

/// Segments in a block.
const RECORDS_MAX: usize = 4096;
/// Header bytes in a block: enough for a block of lone ACKs.
const HEADERS_MAX: usize = RECORDS_MAX * 52;
/// The longest headers of one packet; what is longer is cut.
const PACKET_HEADERS_MAX: usize = 256;
/// What [`super::merge`] adds for each note.
const MERGE_BYTES: usize = size_of::<(Time, u64)>();

/// The most memory that a block takes.
pub(super) const BUFFER_BYTES: usize = RECORDS_MAX
    * (size_of::<SegmentRecord>() + size_of::<HeaderEntry>() + MERGE_BYTES)
    + HEADERS_MAX;

/// Nothing older than that waits in a block that is not full.
pub(super) const FILL_TIME_MAX: Time = Time::from_millis(50);

/// Notes of one direction, in the order in which they were taken.
#[derive(Debug)]
pub(super) struct RecordBuffer {
    records: Vec<SegmentRecord>,
    header_entries: Vec<HeaderEntry>,
    headers: Vec<u8>,
}

/// Notes of one direction on their way to the file.
pub(super) struct FullBuffer {
    pub(super) direction: Direction,
    pub(super) buffer: RecordBuffer,
}

/// One segment at one tap point.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentRecord {
    /// When it came or went.
    pub(super) at: Time,
    /// Before the queue only.
    pub(super) emulator_record: Option<EmulatorRecord>,
    header: u32,
    index: u16,
}

/// Headers that segments share.
#[derive(Debug)]
struct HeaderEntry {
    /// How they are cut; `None` is for bytes that are as they went.
    layout: Option<SuperPacket>,
    wire_len: u32,
    from: u32,
    len: u32,
}

impl SegmentRecord {
    /// A segment came to the queue.
    pub(super) fn arrival(judged: &SegmentVerdict, head: u32) -> Self {
        Self {
            at: judged.at,
            emulator_record: Some(EmulatorRecord {
                queue_bytes: u32::try_from(judged.queue_bytes).unwrap_or(u32::MAX),
                fate: judged.lost.map_or(Verdict::Passed, verdict_of),
            }),
            header: head,
            index: judged.segment.index,
        }
    }

    /// A segment came out.
    pub(super) fn departure(out: &Delivered, head: u32) -> Self {
        Self {
            at: out.at,
            emulator_record: None,
            header: head,
            index: out.segment.index,
        }
    }

    /// Which end of the direction it was seen at.
    pub(super) fn is_departure(&self) -> bool {
        self.emulator_record.is_none()
    }
}

fn verdict_of(lost: Drop) -> Verdict {
    match lost {
        Drop::Loss => Verdict::Lost,
        Drop::Overflow | Drop::Aqm => Verdict::Dropped,
        Drop::AckFiltering => Verdict::AckFiltered,
    }
}

impl RecordBuffer {
    /// Takes all its memory, of which the system gives what is used.
    pub(super) fn new() -> Self {
        Self {
            records: Vec::with_capacity(RECORDS_MAX),
            header_entries: Vec::with_capacity(RECORDS_MAX),
            headers: Vec::with_capacity(HEADERS_MAX),
        }
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.header_entries.clear();
        self.headers.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether one more note with its headers may find no room.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() == RECORDS_MAX || self.headers.len() + PACKET_HEADERS_MAX > HEADERS_MAX
    }

    /// Keeps the headers of a super-packet; their number.
    pub(super) fn add_packet_headers(&mut self, layout: SuperPacket, packet: &[u8]) -> u32 {
        let headers = &packet[..layout.headers_len(packet).min(PACKET_HEADERS_MAX)];
        self.add_headers(Some(layout), 0, headers)
    }

    /// Keeps the headers of one segment of `wire_len` bytes as they are; their number.
    pub(super) fn add_segment_headers(&mut self, headers: &[u8], wire_len: u32) -> u32 {
        self.add_headers(
            None,
            wire_len,
            &headers[..headers.len().min(PACKET_HEADERS_MAX)],
        )
    }

    fn add_headers(&mut self, layout: Option<SuperPacket>, wire_len: u32, headers: &[u8]) -> u32 {
        self.header_entries.push(HeaderEntry {
            layout,
            wire_len,
            from: self.headers.len() as u32,
            len: headers.len() as u32,
        });
        self.headers.extend_from_slice(headers);
        self.header_entries.len() as u32 - 1
    }

    pub(super) fn push(&mut self, note: SegmentRecord) {
        self.records.push(note);
    }

    pub(super) fn records(&self) -> &[SegmentRecord] {
        &self.records
    }

    /// Writes the headers of a segment into `out` (cleared first); its length on the wire.
    pub(super) fn headers(&self, note: &SegmentRecord, out: &mut Vec<u8>) -> u32 {
        let head = &self.header_entries[note.header as usize];
        let bytes = &self.headers[head.from as usize..][..head.len as usize];
        out.clear();
        match &head.layout {
            Some(layout) => {
                layout.segment_headers(bytes, note.index, out);
                layout.segment_len(note.index)
            }
            None => {
                out.extend_from_slice(bytes);
                head.wire_len
            }
        }
    }
}
