// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each with its type before it and its length
//! before and after it.

mod body;
mod options;

pub(crate) use body::{interface, record};

use super::framing::{Guess, Judgement, Search, search};
use super::order::Order;
use super::{Fault, RECORD_MAX};
use std::ops::Range;

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
