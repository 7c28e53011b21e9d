// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer of capture records: headers once for a super-packet, and a few bytes for each segment.

use super::super::counters::Direction;
use longhaul_netem::{Delivered, DropCause, SegmentVerdict};
use longhaul_packet::{
    capture::{EmulatorRecord, Verdict},
    super_packet::SuperPacket,
};
use longhaul_units::Time;

/// Records in a buffer.
const RECORDS_MAX: usize = 4096;
/// Header bytes in a buffer: enough for a buffer of single ACKs.
const HEADERS_MAX: usize = RECORDS_MAX * 52;
/// Most header bytes of one packet; longer headers are cut.
const PACKET_HEADERS_MAX: usize = 256;
/// Bytes that [`super::merger`] adds for each record.
const MERGE_BYTES: usize = size_of::<(Time, u64)>();

/// Most memory of a buffer.
pub(super) const BUFFER_BYTES: usize = RECORDS_MAX
    * (size_of::<SegmentRecord>() + size_of::<HeaderEntry>() + MERGE_BYTES)
    + HEADERS_MAX;

/// Longest time that records wait in a buffer that is not full.
pub(super) const FILL_TIME_MAX: Time = Time::from_millis(50);

/// Records of one direction, in the order in which they were made.
#[derive(Debug)]
pub(super) struct RecordBuffer {
    records: Vec<SegmentRecord>,
    header_entries: Vec<HeaderEntry>,
    headers: Vec<u8>,
}

/// Full buffer of one direction on its way to the file.
pub(super) struct FullBuffer {
    pub(super) direction: Direction,
    pub(super) buffer: RecordBuffer,
}

/// Record of one segment at one end of the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentRecord {
    /// Time of arrival or departure.
    pub(super) at: Time,
    /// Record of the emulator; arrivals only.
    pub(super) emulator_record: Option<EmulatorRecord>,
    header: u32,
    index: u16,
}

/// Headers that segments share.
#[derive(Debug)]
struct HeaderEntry {
    /// Division into segments; `None` if the bytes are the headers of one segment.
    layout: Option<SuperPacket>,
    wire_len: u32,
    from: u32,
    len: u32,
}

impl SegmentRecord {
    /// Creates the record of a segment that arrived at the queue.
    pub(super) fn arrival(verdict: &SegmentVerdict, head: u32) -> Self {
        Self {
            at: verdict.at,
            emulator_record: Some(EmulatorRecord {
                queue_bytes: u32::try_from(verdict.queue_bytes).unwrap_or(u32::MAX),
                verdict: verdict.lost.map_or(Verdict::Passed, verdict_of),
            }),
            header: head,
            index: verdict.segment.index,
        }
    }

    /// Creates the record of a segment that left the link.
    pub(super) fn departure(out: &Delivered, head: u32) -> Self {
        Self {
            at: out.at,
            emulator_record: None,
            header: head,
            index: out.segment.index,
        }
    }

    /// Returns whether the segment left the link.
    pub(super) fn is_departure(&self) -> bool {
        self.emulator_record.is_none()
    }
}

fn verdict_of(lost: DropCause) -> Verdict {
    match lost {
        DropCause::Loss => Verdict::Lost,
        DropCause::Overflow | DropCause::Aqm => Verdict::Dropped,
        DropCause::AckFiltering => Verdict::AckFiltered,
    }
}

impl RecordBuffer {
    /// Reserves all its memory, which the system allocates as it is used.
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

    /// Returns whether the buffer may have no room for one more record with its headers.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() == RECORDS_MAX || self.headers.len() + PACKET_HEADERS_MAX > HEADERS_MAX
    }

    /// Adds the headers of a super-packet; returns their index.
    pub(super) fn add_packet_headers(&mut self, layout: SuperPacket, packet: &[u8]) -> u32 {
        let headers = &packet[..layout.headers_len(packet).min(PACKET_HEADERS_MAX)];
        self.add_headers(Some(layout), 0, headers)
    }

    /// Adds the headers of one segment of `wire_len` bytes as they are; returns their index.
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

    pub(super) fn push(&mut self, record: SegmentRecord) {
        self.records.push(record);
    }

    pub(super) fn records(&self) -> &[SegmentRecord] {
        &self.records
    }

    /// Writes the headers of a segment into `out` (cleared first); returns its length on the wire.
    pub(super) fn headers(&self, record: &SegmentRecord, out: &mut Vec<u8>) -> u32 {
        let head = &self.header_entries[record.header as usize];
        let bytes = &self.headers[head.from as usize..][..head.len as usize];
        out.clear();
        match &head.layout {
            Some(layout) => {
                layout.segment_headers(bytes, record.index, out);
                layout.segment_len(record.index)
            }
            None => {
                out.extend_from_slice(bytes);
                head.wire_len
            }
        }
    }
}
