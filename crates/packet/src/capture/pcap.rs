// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcap (draft-ietf-opsawg-pcap): a file header, then records with a header of 16 bytes each: seconds,
//! fraction, captured length, length on the wire.
//!
//! Nothing in a record says that it is one. A record counts as whole and sound if what comes right
//! after it could be the header of another, not more than a day away; if not, the places inside it
//! where a run of headers begins are tried, so that one wrong length costs one record.

use super::framing::{Guess, Judgement, Search, search};
use super::order::Order;
use super::{Fault, Frame, LinkType, RECORD_MAX};
use std::{cmp::Ordering, ops::Range};

/// Length of the file header.
pub(crate) const FILE_HEADER: usize = 24;

/// Most bytes of a frame that a file without a (greater) snaplen may have: libpcap's
/// `MAXIMUM_SNAPLEN`. A search believes in nothing longer either.
const SNAPLEN_MAX: u32 = 262_144;

/// Neighbours are not further from each other: what differs more is damaged, or a run of its own.
const DAY: u32 = 86_400;

/// So many headers in a row are no chance, where times agree with those before the damage.
const RUN: usize = 3;
/// And where they don't.
const RUN_AT_ANOTHER_TIME: usize = 8;

/// A magic number, the nanoseconds that the fraction counts, and the lengths that a record header may
/// have. libpcap's patched versions of 1999 made longer ones, some under the old magic number; so did
/// Nokia's.
type Variant = (u32, u32, &'static [usize]);
const VARIANTS: [Variant; 3] = [
    (0xa1b2_c3d4, 1000, &[16, 24, 20]),
    (0xa1b2_3c4d, 1, &[16]),
    (0xa1b2_cd34, 1000, &[24, 28]),
];

/// How the records of a file are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pcap {
    order: Order,
    /// Nanoseconds in one of the fraction.
    fraction_ns: u32,
    /// What the magic number leaves open.
    header_lens: &'static [usize],
    /// Of a record.
    header_len: usize,
    caplen_max: u32,
    pub(crate) snaplen: u32,
    pub(crate) link_type: LinkType,
}

/// A record's header.
#[derive(Clone, Copy)]
struct Header {
    seconds: u32,
    fraction: u32,
    caplen: u32,
    wire_len: u32,
}

impl Header {
    fn is_near(&self, seconds: u32) -> bool {
        self.seconds.abs_diff(seconds) <= DAY
    }
}

/// Whether a file begins like this.
pub(crate) fn is_magic(bytes: [u8; 4]) -> bool {
    variant(bytes).is_some()
}

fn variant(bytes: [u8; 4]) -> Option<(Order, &'static Variant)> {
    VARIANTS.iter().find_map(|variant| {
        let order = Order::of(bytes, variant.0)?;
        Some((order, variant))
    })
}

impl Pcap {
    /// From the file header.
    pub(crate) fn parse(header: &[u8; FILE_HEADER]) -> Option<Self> {
        let (order, (_, fraction_ns, header_lens)) = variant(*header.first_chunk()?)?;
        let snaplen = order.u32(header, 16);
        Some(Self {
            order,
            fraction_ns: *fraction_ns,
            header_lens,
            header_len: header_lens[0],
            caplen_max: snaplen.clamp(SNAPLEN_MAX, RECORD_MAX as u32 - 28),
            snaplen,
            // The upper half is about the FCS, which nobody needs to know who goes by IP's lengths.
            link_type: LinkType::from_number(order.u32(header, 20) as u16),
        })
    }

    /// With the first length of record headers that makes a run of the records, else the usual one; or
    /// how many bytes of records it takes to say.
    pub(crate) fn settled(self, records: &[u8], at_end: bool) -> Result<Self, usize> {
        if self.header_lens.len() == 1 {
            return Ok(self);
        }
        for &header_len in self.header_lens {
            let candidate = Self { header_len, ..self };
            match candidate.run_begins(records, 0, at_end, None) {
                Guess::Yes => return Ok(candidate),
                Guess::Unsure(need) => return Err(need),
                Guess::No => {}
            }
        }
        Ok(self)
    }

    /// Length of the run of whole, sound records that these bytes begin with, how many they are, and the
    /// seconds of the last one.
    pub(crate) fn run(&self, bytes: &[u8], at_end: bool) -> (usize, u64, Option<u32>) {
        let (mut at, mut records, mut last) = (0, 0, None);
        let mut header = self.header(bytes, 0);
        while let Some(this) = header.filter(|header| self.is_possible(header)) {
            let end = at + self.len(&this);
            header = self.header(bytes, end);
            let sound = match &header {
                Some(next) => self.is_plausible(next) && next.is_near(this.seconds),
                None => at_end && end == bytes.len(),
            };
            if !sound {
                break;
            }
            (at, records, last) = (end, records + 1, Some(this.seconds));
        }
        (at, records, last)
    }

    /// What bytes begin with that do not begin with a run. `before` is the time of the last sound
    /// record.
    pub(crate) fn judge(&self, bytes: &[u8], at_end: bool, before: Option<u32>) -> Judgement {
        let Some(header) = self.header(bytes, 0) else {
            return match at_end {
                true => Judgement::Damage(bytes.len(), Fault::Truncated),
                false => Judgement::More(self.header_len),
            };
        };
        if !self.is_possible(&header) {
            return Judgement::Lost(Fault::Header);
        }
        let needed = self.len(&header) + self.header_len;
        match bytes.len() < needed && !at_end {
            true => Judgement::More(needed),
            false => self.judge_record(&header, bytes, at_end, before),
        }
    }

    /// The record cannot be told from damage by the header behind it, if there is one.
    fn judge_record(
        &self,
        header: &Header,
        bytes: &[u8],
        at_end: bool,
        before: Option<u32>,
    ) -> Judgement {
        let end = self.len(header);
        if self.is_out_of_time(header, self.header(bytes, end), before) {
            return Judgement::Damage(end, Fault::Time);
        }
        let inside = 1..end.min(bytes.len());
        match self.search(bytes, inside, at_end, before.or(Some(header.seconds))) {
            Search::At(at) => Judgement::Damage(at, Fault::Header),
            Search::Unsure { need, .. } => Judgement::More(need),
            Search::Nowhere if bytes.len() < end => {
                Judgement::Damage(bytes.len(), Fault::Truncated)
            }
            Search::Nowhere => Judgement::Record(end),
        }
    }

    /// Both neighbours agree, and this is not near them.
    fn is_out_of_time(&self, this: &Header, next: Option<Header>, before: Option<u32>) -> bool {
        let near = |header: &Header| before.is_none_or(|seconds| header.is_near(seconds));
        !near(this) && next.is_some_and(|next| self.is_plausible(&next) && near(&next))
    }

    /// Where records begin again.
    pub(crate) fn search(
        &self,
        bytes: &[u8],
        places: Range<usize>,
        at_end: bool,
        before: Option<u32>,
    ) -> Search {
        search(places, |at| self.run_begins(bytes, at, at_end, before))
    }

    /// Whether there are several plausible headers in a row, or some that lead to the end of the file. They
    /// must be near each other, and if they are not near what was before, there must be more of them.
    fn run_begins(&self, bytes: &[u8], at: usize, at_end: bool, before: Option<u32>) -> Guess {
        let (mut at, mut seen, mut run) = (at, 0, RUN);
        let mut near = before;
        while seen < run {
            let Some(header) = self.header(bytes, at) else {
                return self.run_ends(bytes, at, at_end, seen);
            };
            let agrees = near.is_none_or(|seconds| header.is_near(seconds));
            if !self.is_plausible(&header) || !agrees && seen > 0 {
                return Guess::No;
            }
            if !agrees {
                run = RUN_AT_ANOTHER_TIME;
            }
            near = Some(header.seconds);
            at += self.len(&header);
            seen += 1;
        }
        Guess::Yes
    }

    /// What so many headers mean if the next one, at `at`, is not there: one must end with the file, the
    /// last of several may be cut off.
    fn run_ends(&self, bytes: &[u8], at: usize, at_end: bool, seen: usize) -> Guess {
        match (at_end, at.cmp(&bytes.len())) {
            (false, _) => Guess::Unsure(at + self.header_len),
            (true, Ordering::Equal) if seen > 0 => Guess::Yes,
            (true, Ordering::Greater) if seen > 1 => Guess::Yes,
            (true, _) => Guess::No,
        }
    }

    #[inline(always)]
    fn header(&self, bytes: &[u8], at: usize) -> Option<Header> {
        let header = bytes
            .get(at..)?
            .get(..self.header_len)?
            .first_chunk::<16>()?;
        Some(Header {
            seconds: self.order.u32(header, 0),
            fraction: self.order.u32(header, 4),
            caplen: self.order.u32(header, 8),
            wire_len: self.order.u32(header, 12),
        })
    }

    /// When the first record was captured.
    pub(crate) fn seconds(&self, bytes: &[u8]) -> Option<u32> {
        self.header(bytes, 0).map(|header| header.seconds)
    }

    /// Of the whole record.
    fn len(&self, header: &Header) -> usize {
        self.header_len + header.caplen as usize
    }

    /// What a record must have. Zeros are no record, or a file that was given its size in advance would
    /// end with very many.
    fn is_possible(&self, header: &Header) -> bool {
        header.caplen <= self.caplen_max && header.wire_len > 0
    }

    /// What all but odd records have.
    fn is_plausible(&self, header: &Header) -> bool {
        (1..=SNAPLEN_MAX).contains(&header.caplen)
            && (header.caplen..=RECORD_MAX as u32).contains(&header.wire_len)
            && u64::from(header.fraction) * u64::from(self.fraction_ns) < 1_000_000_000
    }

    /// The first of whole records, and those after it.
    #[inline(always)]
    pub(crate) fn split<'a>(&self, bytes: &'a [u8]) -> Option<(Frame<'a>, &'a [u8])> {
        let header = self.header(bytes, 0)?;
        let body = bytes.get(self.header_len..)?;
        let (bytes, rest) = body.split_at_checked(header.caplen as usize)?;
        let fraction_ns = u64::from(header.fraction) * u64::from(self.fraction_ns);
        let frame = Frame {
            at_ns: u64::from(header.seconds) * 1_000_000_000 + fraction_ns,
            interface: 0,
            link_type: self.link_type,
            wire_len: header.wire_len.max(header.caplen),
            bytes,
            segment_size: 0,
            truth: None,
        };
        Some((frame, rest))
    }
}
