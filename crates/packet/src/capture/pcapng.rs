// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcapng files (draft-ietf-opsawg-pcapng): sections of blocks. A block begins with its type and its length and ends
//! with its length again. Blocks hold packets, interfaces and their packet counts (§4.2 to §4.6, §A).

use super::endianness::{Endianness, join_halves};
use super::framing::{Classification, Resync, SyncCheck, resync};
use super::interface::{Clock, Interface, NAME_MAX, Statistics};
use super::writer::{CUSTOM_BINARY_NOT_COPIED, ENTERPRISE, OPTION_VERSION};
use super::{DamageKind, EmulatorRecord, Frame, LinkType, RECORD_MAX, Record, Verdict};
use std::{ops::Range, sync::Arc};

/// Block types (§4 and §11.1).
mod kind {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const STATISTICS: u32 = 5;
    pub(super) const ENHANCED_PACKET: u32 = 6;

    /// Block types that a search after damage accepts. The numbers are name resolution, the systemd journal, decryption
    /// secrets and custom blocks.
    pub(super) const KNOWN: [u32; 11] = [
        SECTION,
        INTERFACE,
        PACKET,
        SIMPLE_PACKET,
        STATISTICS,
        ENHANCED_PACKET,
        4,
        9,
        10,
        0x0bad,
        0x4000_0bad,
    ];
}

/// Options of interface description (§4.2) and interface statistics blocks (§4.6).
mod option {
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const IF_TSOFFSET: u16 = 14;
    pub(super) const ISB_RECEIVED: u16 = 4;
    pub(super) const ISB_IF_DROPPED: u16 = 5;
    pub(super) const ISB_OS_DROPPED: u16 = 7;
}

/// Byte-order magic of the section header block, written in the section's byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Least length of a block in bytes: type, length, and the length again.
pub(crate) const BLOCK_MIN: usize = 12;

/// Longest block in bytes that a search after damage accepts, so that it never waits for many bytes.
const RESYNC_BLOCK_MAX: usize = 1 << 20;

/// Byte order and interface numbers of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    endianness: Endianness,
    /// Number of interfaces in the sections before it: in the file, the section's interface 0 has this number.
    pub(crate) interfaces_before: usize,
}

/// Type and length of a block.
#[derive(Clone, Copy)]
struct BlockHeader {
    kind: u32,
    len: usize,
}

impl BlockHeader {
    /// Whether a block can have this length.
    fn has_valid_len(&self) -> bool {
        self.len.is_multiple_of(4) && (BLOCK_MIN..=RECORD_MAX).contains(&self.len)
    }

    /// Whether the block changes how later blocks are read.
    fn is_header(&self) -> bool {
        matches!(self.kind, kind::SECTION | kind::INTERFACE)
    }

    fn is_packet(&self) -> bool {
        matches!(
            self.kind,
            kind::ENHANCED_PACKET | kind::PACKET | kind::SIMPLE_PACKET
        )
    }
}

/// Whether a pcapng file begins with these bytes.
pub(crate) fn is_magic(bytes: [u8; 4]) -> bool {
    // The block type is the same in both byte orders.
    u32::from_le_bytes(bytes) == kind::SECTION
}

impl Section {
    /// Reads the section header block at the beginning of `bytes`; `None` if there is none.
    pub(crate) fn begin(bytes: &[u8], interfaces_before: usize) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let magic = *rest.get(4..)?.first_chunk()?;
        let endianness = Endianness::detect(magic, BYTE_ORDER_MAGIC)?;
        is_magic(*kind).then_some(Self {
            endianness,
            interfaces_before,
        })
    }

    /// Finds the run of whole blocks at the beginning of `bytes`, up to the next header block. Returns its length in
    /// bytes and the number of packets.
    pub(crate) fn run(&self, bytes: &[u8]) -> (usize, u64) {
        let (mut at, mut packets) = (0, 0);
        while let Some(head) = self.head(bytes, at)
            && !head.is_header()
            && head.has_valid_len()
            && lengths_agree(bytes, at, head.len) == Some(true)
        {
            at += head.len;
            packets += u64::from(head.is_packet());
        }
        (at, packets)
    }

    /// Returns 1 if the block at the beginning of `bytes` is a packet, else 0.
    pub(crate) fn packets(&self, bytes: &[u8]) -> u64 {
        self.head(bytes, 0)
            .is_some_and(|head| head.is_packet())
            .into()
    }

    /// Classifies bytes that do not begin with a run.
    pub(crate) fn classify(&self, bytes: &[u8], at_end: bool) -> Classification {
        if bytes.len() < BLOCK_MIN {
            return if at_end {
                Classification::Damage(bytes.len(), DamageKind::Truncated)
            } else {
                Classification::More(BLOCK_MIN)
            };
        }
        let head = self.head(bytes, 0).filter(BlockHeader::has_valid_len);
        let Some(head) = head else {
            return Classification::OutOfSync(DamageKind::Lengths);
        };
        match lengths_agree(bytes, 0, head.len) {
            None if at_end => self.classify_truncated(bytes),
            None => Classification::More(head.len),
            Some(false) => Classification::OutOfSync(DamageKind::Lengths),
            Some(true) if head.is_header() => Classification::Header(head.len),
            Some(true) => Classification::Record(head.len),
        }
    }

    /// Classifies a block that reaches beyond the end of the file. Either the file is cut off or the length is wrong.
    fn classify_truncated(&self, bytes: &[u8]) -> Classification {
        match self.resync(bytes, 1..bytes.len(), true) {
            Resync::At(at) => Classification::Damage(at, DamageKind::Lengths),
            _ => Classification::Damage(bytes.len(), DamageKind::Truncated),
        }
    }

    /// Finds the first of `offsets` at which blocks begin.
    pub(crate) fn resync(&self, bytes: &[u8], offsets: Range<usize>, at_end: bool) -> Resync {
        // The type of a block is at its beginning.
        resync(bytes, offsets, 0, |at| self.check_sync(bytes, at, at_end))
    }

    /// Checks whether a block whose lengths agree begins at `at`, followed by another block or the end of the file.
    fn check_sync(&self, bytes: &[u8], at: usize, at_end: bool) -> SyncCheck {
        let undecided = |need| {
            if at_end {
                SyncCheck::No
            } else {
                SyncCheck::Undecided(need)
            }
        };
        if bytes.len() < at + BLOCK_MIN {
            return undecided(at + BLOCK_MIN);
        }
        let head = self.head(bytes, at).filter(|head| {
            kind::KNOWN.contains(&head.kind) && head.has_valid_len() && head.len <= RESYNC_BLOCK_MAX
        });
        let Some(head) = head else {
            return SyncCheck::No;
        };
        match lengths_agree(bytes, at, head.len) {
            None => undecided(at + head.len),
            Some(false) => SyncCheck::No,
            Some(true) => self.check_next_block(bytes, at + head.len, at_end),
        }
    }

    /// Checks whether a block can begin at `at`, right after a valid one.
    fn check_next_block(&self, bytes: &[u8], at: usize, at_end: bool) -> SyncCheck {
        if bytes.len() < at + BLOCK_MIN {
            return if at_end {
                SyncCheck::Yes
            } else {
                SyncCheck::Undecided(at + BLOCK_MIN)
            };
        }
        let head = self.head(bytes, at);
        if head.is_some_and(|head| kind::KNOWN.contains(&head.kind) && head.has_valid_len()) {
            SyncCheck::Yes
        } else {
            SyncCheck::No
        }
    }

    /// Reads type and length of the block at `at`; `None` if it is cut off, or a section header without a byte-order
    /// magic.
    #[inline]
    fn head(&self, bytes: &[u8], at: usize) -> Option<BlockHeader> {
        let bytes = bytes.get(at..)?;
        let words = bytes.first_chunk::<8>()?;
        let kind = self.endianness.u32(words, 0);
        let endianness = match kind {
            kind::SECTION => Self::begin(bytes, 0)?.endianness,
            _ => self.endianness,
        };
        let len = endianness.u32(words, 4) as usize;
        Some(BlockHeader { kind, len })
    }
}

/// Whether the block at `at` has the same length at both ends; `None` if it is cut off.
#[inline]
fn lengths_agree(bytes: &[u8], at: usize, len: usize) -> Option<bool> {
    let block = bytes.get(at..)?.get(..len)?;
    Some(block.get(4..8)? == block.last_chunk::<4>()?)
}

/// Reads the first of whole blocks. Returns its record, if it is of a type that has one, and its length in bytes.
#[inline(always)]
pub(crate) fn read_block<'a>(
    section: &Section,
    interfaces: &[Interface],
    bytes: &'a [u8],
) -> Option<(Result<Option<Record<'a>>, DamageKind>, usize)> {
    let BlockHeader { kind, len } = section.head(bytes, 0)?;
    let body = bytes.get(8..len.checked_sub(4)?)?;
    let context = SectionContext {
        endianness: section.endianness,
        interfaces_before: section.interfaces_before,
        interfaces: interfaces.get(section.interfaces_before..)?,
    };
    let record = match kind {
        kind::ENHANCED_PACKET | kind::PACKET => context.packet(kind, body).map(Some),
        kind::SIMPLE_PACKET => context.simple_packet(body).map(Some),
        kind::STATISTICS => context.statistics(body).map(Some),
        _ => Ok(None),
    };
    Some((record, len))
}

/// Byte order and interfaces of a section, which its blocks refer to.
struct SectionContext<'i> {
    endianness: Endianness,
    interfaces_before: usize,
    interfaces: &'i [Interface],
}

impl SectionContext<'_> {
    /// Reads an enhanced packet block (§4.3) or an obsolete packet block (§A). The latter has 16 bits for the
    /// interface, then 16 bits for a count of drops.
    #[inline(always)]
    fn packet<'a>(&self, kind: u32, body: &'a [u8]) -> Result<Record<'a>, DamageKind> {
        let (fixed, rest) = body.split_first_chunk::<20>().ok_or(DamageKind::Short)?;
        let number = match kind {
            kind::PACKET => u32::from(self.endianness.u16(fixed, 0)),
            _ => self.endianness.u32(fixed, 0),
        };
        let (interface, description) = self.interface(number)?;
        let caplen = self.endianness.u32(fixed, 12) as usize;
        let bytes = rest.get(..caplen).ok_or(DamageKind::Short)?;
        let options = rest.get(caplen.next_multiple_of(4)..).unwrap_or_default();
        let metadata = find_metadata(self.endianness, options);
        Ok(Record::Frame(Frame {
            timestamp_ns: description.clock.nanoseconds(self.timestamp(fixed)),
            interface,
            link_type: description.link_type,
            wire_len: self.endianness.u32(fixed, 16).max(caplen as u32),
            bytes,
            segment_size: metadata.segment_size,
            emulator_record: metadata.emulator_record,
        }))
    }

    /// Reads the timestamp, whose upper half comes first.
    fn timestamp<const N: usize>(&self, fixed: &[u8; N]) -> u64 {
        join_halves(self.endianness.u32(fixed, 4), self.endianness.u32(fixed, 8))
    }

    /// Reads a simple packet block (§4.4). It belongs to interface 0 and has no time.
    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, DamageKind> {
        let (fixed, rest) = body.split_first_chunk::<4>().ok_or(DamageKind::Short)?;
        let (interface, description) = self.interface(0)?;
        let wire_len = self.endianness.u32(fixed, 0);
        let caplen = match description.snaplen {
            0 => wire_len,
            snaplen => wire_len.min(snaplen),
        };
        Ok(Record::Frame(Frame {
            timestamp_ns: 0,
            interface,
            link_type: description.link_type,
            wire_len,
            bytes: rest.get(..caplen as usize).ok_or(DamageKind::Short)?,
            segment_size: 0,
            emulator_record: None,
        }))
    }

    /// Reads an interface statistics block (§4.6).
    fn statistics<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, DamageKind> {
        let (fixed, rest) = body.split_first_chunk::<12>().ok_or(DamageKind::Short)?;
        let (interface, description) = self.interface(self.endianness.u32(fixed, 0))?;
        let mut statistics = Statistics {
            interface,
            timestamp_ns: description.clock.nanoseconds(self.timestamp(fixed)),
            received: None,
            if_dropped: None,
            os_dropped: None,
        };
        for (code, value) in options(self.endianness, rest) {
            let count = value
                .first_chunk()
                .map(|value: &[u8; 8]| self.endianness.u64(value, 0));
            match code {
                option::ISB_RECEIVED => statistics.received = count,
                option::ISB_IF_DROPPED => statistics.if_dropped = count,
                option::ISB_OS_DROPPED => statistics.os_dropped = count,
                _ => {}
            }
        }
        Ok(Record::Statistics(Box::new(statistics)))
    }

    /// Returns the number in the file and the description of the section's interface `number`.
    #[inline]
    fn interface(&self, number: u32) -> Result<(u32, &Interface), DamageKind> {
        let description = self.interfaces.get(number as usize);
        let description = description.ok_or(DamageKind::Interface)?;
        Ok((self.interfaces_before as u32 + number, description))
    }
}

/// Parses a whole interface description block (§4.2).
pub(crate) fn parse_interface(section: &Section, block: &[u8]) -> Result<Interface, DamageKind> {
    let body = block.get(8..block.len().saturating_sub(4));
    let (fixed, rest) = body
        .and_then(|body| body.split_first_chunk::<8>())
        .ok_or(DamageKind::Short)?;
    let mut interface = Interface {
        name: None,
        link_type: LinkType::from_number(section.endianness.u16(fixed, 0)),
        snaplen: section.endianness.u32(fixed, 4),
        clock: Clock::MICROSECONDS,
    };
    for (code, value) in options(section.endianness, rest) {
        apply_option(&mut interface, section.endianness, code, value);
    }
    Ok(interface)
}

fn apply_option(interface: &mut Interface, endianness: Endianness, code: u16, value: &[u8]) {
    let clock = interface.clock;
    match (code, value) {
        (option::IF_NAME, _) => interface.name = Some(parse_name(value)),
        (option::IF_TSRESOL, [resolution, ..]) => {
            interface.clock = clock.with_resolution(*resolution);
        }
        (option::IF_TSOFFSET, _) => {
            if let Some(seconds) = value.first_chunk::<8>() {
                interface.clock = clock.with_offset(endianness.u64(seconds, 0).cast_signed());
            }
        }
        _ => {}
    }
}

/// Parses a name. Invalid UTF-8 is replaced. Some writers end the name with a zero.
fn parse_name(value: &[u8]) -> Arc<str> {
    let text = &value[..value.len().min(NAME_MAX)];
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into()
}

/// Iterates over options as code and value (§3.5). Ends at the end-of-options option, at the end of the block, or at
/// the first option that reaches beyond the block.
fn options(endianness: Endianness, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, body) = rest.split_first_chunk::<4>()?;
        let (code, len) = (
            endianness.u16(head, 0),
            usize::from(endianness.u16(head, 2)),
        );
        let value = body.get(..len).filter(|_| code != 0)?;
        rest = body.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

/// Packet metadata in the custom option of longhaul (docs/tap-format.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Metadata {
    segment_size: u16,
    emulator_record: Option<EmulatorRecord>,
}

/// Finds the custom option of longhaul among a packet's options; empty metadata if there is none.
#[inline]
fn find_metadata(endianness: Endianness, bytes: &[u8]) -> Metadata {
    if bytes.is_empty() {
        return Metadata::default();
    }
    options(endianness, bytes)
        .filter(|(code, _)| *code == CUSTOM_BINARY_NOT_COPIED)
        .find_map(|(_, value)| parse_metadata(endianness, value.try_into().ok()?))
        .unwrap_or_default()
}

/// Parses the value of a custom option: enterprise number, version, verdict, segment size, queue. `None` if the option is
/// not longhaul's.
fn parse_metadata(endianness: Endianness, value: &[u8; 12]) -> Option<Metadata> {
    let is_longhaul = endianness.u32(value, 0) == ENTERPRISE && value[4] == OPTION_VERSION;
    let queue_bytes = endianness.u32(value, 8);
    is_longhaul.then(|| Metadata {
        segment_size: endianness.u16(value, 6),
        emulator_record: decode_verdict(value[5]).map(|verdict| EmulatorRecord {
            queue_bytes,
            verdict,
        }),
    })
}

const fn decode_verdict(code: u8) -> Option<Verdict> {
    match code {
        0 => Some(Verdict::Passed),
        1 => Some(Verdict::Lost),
        2 => Some(Verdict::Dropped),
        3 => Some(Verdict::AckFiltered),
        _ => None,
    }
}
