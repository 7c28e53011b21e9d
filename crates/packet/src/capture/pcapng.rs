// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each with its type before it and its length
//! before and after it. Inside of blocks are packets, interfaces and what they counted (§4.2 to §4.6, §A).

use super::framing::{Guess, Judgement, Search, search};
use super::interface::{Clock, Interface, NAME_MAX, Statistics};
use super::order::{Order, halves};
use super::writer::{CUSTOM_BINARY_NOT_COPIED, ENTERPRISE, OPTION_VERSION};
use super::{Fate, Fault, Frame, LinkType, RECORD_MAX, Record, Truth};
use std::{ops::Range, sync::Arc};

/// Block types (§4 and §11.1).
mod kind {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const STATISTICS: u32 = 5;
    pub(super) const ENHANCED_PACKET: u32 = 6;

    /// What a search believes to be a block. The others are names, the systemd journal, secrets and
    /// custom blocks.
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

/// Of the section header block, written in the section's byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Type, length, and the length again.
pub(crate) const BLOCK_MIN: usize = 12;

/// A search believes in no longer blocks, so that it never waits for more.
const SEARCHED_MAX: usize = 1 << 20;

/// How the blocks of a section are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    order: Order,
    /// The number of the section's interface 0 among those of the file.
    pub(crate) interfaces_before: usize,
}

/// A block's first words.
#[derive(Clone, Copy)]
struct Head {
    kind: u32,
    len: usize,
}

impl Head {
    /// Whether this can be the length of a block.
    fn is_sound(&self) -> bool {
        self.len.is_multiple_of(4) && (BLOCK_MIN..=RECORD_MAX).contains(&self.len)
    }

    /// Whether it changes how later blocks are to be read.
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

/// Whether a file begins like this.
pub(crate) fn is_magic(bytes: [u8; 4]) -> bool {
    // The same in both byte orders.
    u32::from_le_bytes(bytes) == kind::SECTION
}

impl Section {
    /// The section that a section header block begins, if these bytes are one.
    pub(crate) fn begin(bytes: &[u8], interfaces_before: usize) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let magic = *rest.get(4..)?.first_chunk()?;
        let order = Order::of(magic, BYTE_ORDER_MAGIC)?;
        is_magic(*kind).then_some(Self {
            order,
            interfaces_before,
        })
    }

    /// Length of the whole blocks that these bytes begin with, up to the next header, and how many of them
    /// are packets.
    pub(crate) fn run(&self, bytes: &[u8]) -> (usize, u64) {
        let (mut at, mut packets) = (0, 0);
        while let Some(head) = self.head(bytes, at)
            && !head.is_header()
            && head.is_sound()
            && lengths_agree(bytes, at, head.len) == Some(true)
        {
            at += head.len;
            packets += u64::from(head.is_packet());
        }
        (at, packets)
    }

    /// How many packets the block at the beginning is.
    pub(crate) fn packets(&self, bytes: &[u8]) -> u64 {
        self.head(bytes, 0)
            .is_some_and(|head| head.is_packet())
            .into()
    }

    /// What bytes begin with that do not begin with a run.
    pub(crate) fn judge(&self, bytes: &[u8], at_end: bool) -> Judgement {
        if bytes.len() < BLOCK_MIN {
            return match at_end {
                true => Judgement::Damage(bytes.len(), Fault::Truncated),
                false => Judgement::More(BLOCK_MIN),
            };
        }
        let head = self.head(bytes, 0).filter(Head::is_sound);
        let Some(head) = head else {
            return Judgement::Lost(Fault::Lengths);
        };
        match lengths_agree(bytes, 0, head.len) {
            None if at_end => self.judge_end(bytes),
            None => Judgement::More(head.len),
            Some(false) => Judgement::Lost(Fault::Lengths),
            Some(true) if head.is_header() => Judgement::Header(head.len),
            Some(true) => Judgement::Record(head.len),
        }
    }

    /// The file ends before the block says that it does. Perhaps its length is wrong.
    fn judge_end(&self, bytes: &[u8]) -> Judgement {
        match self.search(bytes, 1..bytes.len(), true) {
            Search::At(at) => Judgement::Damage(at, Fault::Lengths),
            _ => Judgement::Damage(bytes.len(), Fault::Truncated),
        }
    }

    /// Where blocks begin again.
    pub(crate) fn search(&self, bytes: &[u8], places: Range<usize>, at_end: bool) -> Search {
        search(places, |at| self.block_begins(bytes, at, at_end))
    }

    /// Whether there is a block whose lengths agree, with another or the end of the file behind it.
    fn block_begins(&self, bytes: &[u8], at: usize, at_end: bool) -> Guess {
        let unsure = |need| match at_end {
            true => Guess::No,
            false => Guess::Unsure(need),
        };
        if bytes.len() < at + BLOCK_MIN {
            return unsure(at + BLOCK_MIN);
        }
        let head = self.head(bytes, at).filter(|head| {
            kind::KNOWN.contains(&head.kind) && head.is_sound() && head.len <= SEARCHED_MAX
        });
        let Some(head) = head else {
            return Guess::No;
        };
        match lengths_agree(bytes, at, head.len) {
            None => unsure(at + head.len),
            Some(false) => Guess::No,
            Some(true) => self.block_may_begin(bytes, at + head.len, at_end),
        }
    }

    fn block_may_begin(&self, bytes: &[u8], at: usize, at_end: bool) -> Guess {
        if bytes.len() < at + BLOCK_MIN {
            return match at_end {
                true => Guess::Yes,
                false => Guess::Unsure(at + BLOCK_MIN),
            };
        }
        let head = self.head(bytes, at);
        match head.is_some_and(|head| kind::KNOWN.contains(&head.kind) && head.is_sound()) {
            true => Guess::Yes,
            false => Guess::No,
        }
    }

    /// Type and length of the block at `at`; `None` if it is cut off, or a section without byte order.
    #[inline]
    fn head(&self, bytes: &[u8], at: usize) -> Option<Head> {
        let bytes = bytes.get(at..)?;
        let words = bytes.first_chunk::<8>()?;
        let kind = self.order.u32(words, 0);
        let order = match kind {
            kind::SECTION => Self::begin(bytes, 0)?.order,
            _ => self.order,
        };
        let len = order.u32(words, 4) as usize;
        Some(Head { kind, len })
    }
}

/// Whether the block at `at` has the same length at both of its ends; `None` if it is cut off.
#[inline]
fn lengths_agree(bytes: &[u8], at: usize, len: usize) -> Option<bool> {
    let block = bytes.get(at..)?.get(..len)?;
    Some(block.get(4..8)? == block.last_chunk::<4>()?)
}

/// The first of whole blocks, as far as it has something to say, with its length.
#[inline(always)]
pub(crate) fn record<'a>(
    section: &Section,
    interfaces: &[Interface],
    bytes: &'a [u8],
) -> Option<(Result<Option<Record<'a>>, Fault>, usize)> {
    let Head { kind, len } = section.head(bytes, 0)?;
    let body = bytes.get(8..len.checked_sub(4)?)?;
    let blocks = Blocks {
        order: section.order,
        interfaces_before: section.interfaces_before,
        interfaces: interfaces.get(section.interfaces_before..)?,
    };
    let record = match kind {
        kind::ENHANCED_PACKET | kind::PACKET => blocks.packet(kind, body).map(Some),
        kind::SIMPLE_PACKET => blocks.simple_packet(body).map(Some),
        kind::STATISTICS => blocks.statistics(body).map(Some),
        _ => Ok(None),
    };
    Some((record, len))
}

/// A section with its interfaces, so far.
struct Blocks<'i> {
    order: Order,
    interfaces_before: usize,
    interfaces: &'i [Interface],
}

impl Blocks<'_> {
    /// An enhanced packet block (§4.3), or the obsolete packet block (§A), which has 16 bits of
    /// interface, then 16 of a count of drops.
    #[inline(always)]
    fn packet<'a>(&self, kind: u32, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<20>().ok_or(Fault::Short)?;
        let number = match kind {
            kind::PACKET => u32::from(self.order.u16(fixed, 0)),
            _ => self.order.u32(fixed, 0),
        };
        let (interface, described) = self.interface(number)?;
        let caplen = self.order.u32(fixed, 12) as usize;
        let bytes = rest.get(..caplen).ok_or(Fault::Short)?;
        let options = rest.get(caplen.next_multiple_of(4)..).unwrap_or_default();
        let own = own(self.order, options);
        Ok(Record::Frame(Frame {
            at_ns: described.clock.nanoseconds(self.stamp(fixed)),
            interface,
            link_type: described.link_type,
            wire_len: self.order.u32(fixed, 16).max(caplen as u32),
            bytes,
            segment_size: own.segment_size,
            truth: own.truth,
        }))
    }

    /// Upper half, lower half.
    fn stamp<const N: usize>(&self, fixed: &[u8; N]) -> u64 {
        halves(self.order.u32(fixed, 4), self.order.u32(fixed, 8))
    }

    /// A simple packet block (§4.4): of interface 0, without a time.
    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<4>().ok_or(Fault::Short)?;
        let (interface, described) = self.interface(0)?;
        let wire_len = self.order.u32(fixed, 0);
        let caplen = match described.snaplen {
            0 => wire_len,
            snaplen => wire_len.min(snaplen),
        };
        Ok(Record::Frame(Frame {
            at_ns: 0,
            interface,
            link_type: described.link_type,
            wire_len,
            bytes: rest.get(..caplen as usize).ok_or(Fault::Short)?,
            segment_size: 0,
            truth: None,
        }))
    }

    /// An interface statistics block.
    fn statistics<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<12>().ok_or(Fault::Short)?;
        let (interface, described) = self.interface(self.order.u32(fixed, 0))?;
        let mut statistics = Statistics {
            interface,
            at_ns: described.clock.nanoseconds(self.stamp(fixed)),
            received: None,
            if_dropped: None,
            os_dropped: None,
        };
        for (code, value) in options(self.order, rest) {
            let count = value
                .first_chunk()
                .map(|value: &[u8; 8]| self.order.u64(value, 0));
            match code {
                option::ISB_RECEIVED => statistics.received = count,
                option::ISB_IF_DROPPED => statistics.if_dropped = count,
                option::ISB_OS_DROPPED => statistics.os_dropped = count,
                _ => {}
            }
        }
        Ok(Record::Statistics(statistics))
    }

    /// By its number in the section: its number in the file, and what was said of it.
    #[inline]
    fn interface(&self, number: u32) -> Result<(u32, &Interface), Fault> {
        let described = self.interfaces.get(number as usize);
        let described = described.ok_or(Fault::Interface)?;
        Ok((self.interfaces_before as u32 + number, described))
    }
}

/// What a whole interface description block says.
pub(crate) fn interface(section: &Section, block: &[u8]) -> Result<Interface, Fault> {
    let body = block.get(8..block.len().saturating_sub(4));
    let (fixed, rest) = body
        .and_then(|body| body.split_first_chunk::<8>())
        .ok_or(Fault::Short)?;
    let mut interface = Interface {
        name: None,
        link_type: LinkType::from_number(section.order.u16(fixed, 0)),
        snaplen: section.order.u32(fixed, 4),
        clock: Clock::MICROSECONDS,
    };
    for (code, value) in options(section.order, rest) {
        describe(&mut interface, section.order, code, value);
    }
    Ok(interface)
}

fn describe(interface: &mut Interface, order: Order, code: u16, value: &[u8]) {
    let clock = interface.clock;
    match (code, value) {
        (option::IF_NAME, _) => interface.name = Some(name(value)),
        (option::IF_TSRESOL, [resolution, ..]) => {
            interface.clock = clock.with_resolution(*resolution);
        }
        (option::IF_TSOFFSET, _) => {
            if let Some(seconds) = value.first_chunk::<8>() {
                interface.clock = clock.with_offset(order.u64(seconds, 0).cast_signed());
            }
        }
        _ => {}
    }
}

/// Text is UTF-8, or is made so; some writers end it with a zero.
fn name(value: &[u8]) -> Arc<str> {
    let kept = &value[..value.len().min(NAME_MAX)];
    let kept = kept.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(kept).into()
}

/// Code and value of each option (§3.5), up to the end mark, the end of the block or the first that reaches beyond it.
fn options(order: Order, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, body) = rest.split_first_chunk::<4>()?;
        let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        let value = body.get(..len).filter(|_| code != 0)?;
        rest = body.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

/// What our own option says of a packet (docs/tap-format.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Own {
    segment_size: u16,
    truth: Option<Truth>,
}

/// Looks for our own among a packet's options.
#[inline]
fn own(order: Order, bytes: &[u8]) -> Own {
    if bytes.is_empty() {
        return Own::default();
    }
    options(order, bytes)
        .filter(|(code, _)| *code == CUSTOM_BINARY_NOT_COPIED)
        .find_map(|(_, value)| parse(order, value.try_into().ok()?))
        .unwrap_or_default()
}

/// Enterprise number, version, fate, segment size, queue.
fn parse(order: Order, value: &[u8; 12]) -> Option<Own> {
    let ours = order.u32(value, 0) == ENTERPRISE && value[4] == OPTION_VERSION;
    let queue_bytes = order.u32(value, 8);
    ours.then(|| Own {
        segment_size: order.u16(value, 6),
        truth: fate(value[5]).map(|fate| Truth { queue_bytes, fate }),
    })
}

const fn fate(code: u8) -> Option<Fate> {
    match code {
        0 => Some(Fate::Passed),
        1 => Some(Fate::Lost),
        2 => Some(Fate::Dropped),
        3 => Some(Fate::Thinned),
        _ => None,
    }
}
