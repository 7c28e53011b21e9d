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
const NOTES_MAX: usize = 4096;
/// Header bytes in a block: enough for a block of lone ACKs.
const HEADERS_MAX: usize = NOTES_MAX * 52;
/// The longest headers of one packet; what is longer is cut.
const HEAD_MAX: usize = 256;
/// What [`super::merge`] adds for each note.
const ORDER_BYTES: usize = size_of::<(Time, u64)>();

/// The most memory that a block takes.
pub(super) const BYTES: usize =
    NOTES_MAX * (size_of::<Note>() + size_of::<Head>() + ORDER_BYTES) + HEADERS_MAX;

/// Nothing older than that waits in a block that is not full.
pub(super) const FILL_MAX: Time = Time::from_millis(50);

/// Notes of one direction, in the order in which they were taken.
#[derive(Debug)]
pub(super) struct Block {
    notes: Vec<Note>,
    heads: Vec<Head>,
    headers: Vec<u8>,
}

/// Notes of one direction on their way to the file.
pub(super) struct Full {
    pub(super) direction: Direction,
    pub(super) block: Block,
}

/// One segment at one tap point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    /// When it came or went.
    pub(super) at: Time,
    /// Before the queue only.
    pub(super) truth: Option<EmulatorRecord>,
    head: u32,
    index: u16,
}

/// Headers that segments share.
#[derive(Debug)]
struct Head {
    /// How they are cut; `None` is for bytes that are as they went.
    layout: Option<SuperPacket>,
    wire_len: u32,
    from: u32,
    len: u32,
}

impl Note {
    /// A segment came to the queue.
    pub(super) fn arrival(judged: &SegmentVerdict, head: u32) -> Self {
        Self {
            at: judged.at,
            truth: Some(EmulatorRecord {
                queue_bytes: u32::try_from(judged.queue_bytes).unwrap_or(u32::MAX),
                fate: judged.lost.map_or(Verdict::Passed, fate),
            }),
            head,
            index: judged.segment.index,
        }
    }

    /// A segment came out.
    pub(super) fn departure(out: &Delivered, head: u32) -> Self {
        Self {
            at: out.at,
            truth: None,
            head,
            index: out.segment.index,
        }
    }

    /// Which end of the direction it was seen at.
    pub(super) fn comes_out(&self) -> bool {
        self.truth.is_none()
    }
}

fn fate(lost: Drop) -> Verdict {
    match lost {
        Drop::Loss => Verdict::Lost,
        Drop::Overflow | Drop::Aqm => Verdict::Dropped,
        Drop::AckFiltering => Verdict::AckFiltered,
    }
}

impl Block {
    /// Takes all its memory, of which the system gives what is used.
    pub(super) fn new() -> Self {
        Self {
            notes: Vec::with_capacity(NOTES_MAX),
            heads: Vec::with_capacity(NOTES_MAX),
            headers: Vec::with_capacity(HEADERS_MAX),
        }
    }

    pub(super) fn clear(&mut self) {
        self.notes.clear();
        self.heads.clear();
        self.headers.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Whether one more note with its headers may find no room.
    pub(super) fn is_full(&self) -> bool {
        self.notes.len() == NOTES_MAX || self.headers.len() + HEAD_MAX > HEADERS_MAX
    }

    /// Keeps the headers of a super-packet; their number.
    pub(super) fn put_packet(&mut self, layout: SuperPacket, packet: &[u8]) -> u32 {
        let headers = &packet[..layout.headers_len(packet).min(HEAD_MAX)];
        self.put(Some(layout), 0, headers)
    }

    /// Keeps the headers of one segment of `wire_len` bytes as they are; their number.
    pub(super) fn put_segment(&mut self, headers: &[u8], wire_len: u32) -> u32 {
        self.put(None, wire_len, &headers[..headers.len().min(HEAD_MAX)])
    }

    fn put(&mut self, layout: Option<SuperPacket>, wire_len: u32, headers: &[u8]) -> u32 {
        self.heads.push(Head {
            layout,
            wire_len,
            from: self.headers.len() as u32,
            len: headers.len() as u32,
        });
        self.headers.extend_from_slice(headers);
        self.heads.len() as u32 - 1
    }

    pub(super) fn push(&mut self, note: Note) {
        self.notes.push(note);
    }

    pub(super) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Writes the headers of a segment into `out` (cleared first); its length on the wire.
    pub(super) fn headers(&self, note: &Note, out: &mut Vec<u8>) -> u32 {
        let head = &self.heads[note.head as usize];
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
