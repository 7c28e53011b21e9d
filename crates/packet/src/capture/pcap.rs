// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcap files (draft-ietf-opsawg-pcap): a file header, then records. The header of a record has 16 bytes: seconds,
//! fraction, captured length, length on the wire.
//!
//! Records have no magic number. A record counts as valid if the next record's header follows it, is plausible and has
//! a time at most a day away. If it does not, the reader looks inside the record for the offset where a run of headers
//! begins. So a wrong length costs a single record.

use super::endianness::Endianness;
use super::framing::{Classification, Resync, SyncCheck, resync};
use super::{DamageKind, Frame, LinkType, RECORD_MAX};
use std::{cmp::Ordering, ops::Range};

/// Length of the file header in bytes.
pub(crate) const FILE_HEADER: usize = 24;

/// Most captured bytes of a frame, unless the file header has a greater snaplen: libpcap's `MAXIMUM_SNAPLEN`. Also the
/// bound of a plausible header.
const SNAPLEN_MAX: u32 = 262_144;

/// Most seconds between two consecutive records. A greater difference means damage, or a clock that was set.
const TIME_STEP_MAX_S: u32 = 86_400;

/// Plausible headers in a row that prove a run of records, if their times agree with those before the damage.
const SYNC_RECORDS: usize = 3;
/// Plausible headers in a row that prove a run of records, if their times do not agree with those before the damage.
const SYNC_RECORDS_AT_ANOTHER_TIME: usize = 8;

/// Magic number, nanoseconds in a unit of the fraction, and possible lengths of a record header. Patched versions of
/// libpcap from 1999 wrote longer headers, some with the old magic number. So did Nokia's version.
type Variant = (u32, u32, &'static [usize]);
const VARIANTS: [Variant; 3] = [
    (0xa1b2_c3d4, 1000, &[16, 24, 20]),
    (0xa1b2_3c4d, 1, &[16]),
    (0xa1b2_cd34, 1000, &[24, 28]),
];

/// Layout of the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pcap {
    endianness: Endianness,
    /// Nanoseconds in a unit of the fraction.
    fraction_ns: u32,
    /// Lengths of a record header that the magic number allows.
    header_lens: &'static [usize],
    /// Length of a record header in bytes.
    header_len: usize,
    caplen_max: u32,
    pub(crate) snaplen: u32,
    pub(crate) link_type: LinkType,
}

/// Header of a record.
#[derive(Clone, Copy)]
struct RecordHeader {
    seconds: u32,
    fraction: u32,
    caplen: u32,
    wire_len: u32,
}

impl RecordHeader {
    fn is_near(&self, seconds: u32) -> bool {
        self.seconds.abs_diff(seconds) <= TIME_STEP_MAX_S
    }
}

/// Whether a pcap file begins with these bytes.
pub(crate) fn is_magic(bytes: [u8; 4]) -> bool {
    variant(bytes).is_some()
}

fn variant(bytes: [u8; 4]) -> Option<(Endianness, &'static Variant)> {
    VARIANTS.iter().find_map(|variant| {
        let endianness = Endianness::detect(bytes, variant.0)?;
        Some((endianness, variant))
    })
}

impl Pcap {
    /// Parses the file header; `None` if its magic number is not that of pcap.
    pub(crate) fn parse(header: &[u8; FILE_HEADER]) -> Option<Self> {
        let (endianness, (_, fraction_ns, header_lens)) = variant(*header.first_chunk()?)?;
        let snaplen = endianness.u32(header, 16);
        Some(Self {
            endianness,
            fraction_ns: *fraction_ns,
            header_lens,
            header_len: header_lens[0],
            caplen_max: snaplen.clamp(SNAPLEN_MAX, RECORD_MAX as u32 - 28),
            snaplen,
            // The upper half describes the FCS. IP headers have lengths of their own, so it is not needed.
            link_type: LinkType::from_number(endianness.u32(header, 20) as u16),
        })
    }

    /// Sets the length of record headers to the first one that makes a run of `records`, or to the usual one if none
    /// does. Fails with the number of bytes of records that are needed to decide.
    pub(crate) fn detect_header_len(self, records: &[u8], at_end: bool) -> Result<Self, usize> {
        if self.header_lens.len() == 1 {
            return Ok(self);
        }
        for &header_len in self.header_lens {
            let candidate = Self { header_len, ..self };
            match candidate.check_sync(records, 0, at_end, None) {
                SyncCheck::Yes => return Ok(candidate),
                SyncCheck::Undecided(need) => return Err(need),
                SyncCheck::No => {}
            }
        }
        Ok(self)
    }

    /// Finds the run of whole, valid records at the beginning of `bytes`. Returns its length in bytes, the number of
    /// records and the seconds of the last one.
    pub(crate) fn run(&self, bytes: &[u8], at_end: bool) -> (usize, u64, Option<u32>) {
        let (mut at, mut records, mut last) = (0, 0, None);
        let mut header = self.header(bytes, 0);
        while let Some(this) = header.filter(|header| self.is_possible(header)) {
            let end = at + self.record_len(&this);
            header = self.header(bytes, end);
            let is_valid = match &header {
                Some(next) => self.is_plausible(next) && next.is_near(this.seconds),
                None => at_end && end == bytes.len(),
            };
            if !is_valid {
                break;
            }
            (at, records, last) = (end, records + 1, Some(this.seconds));
        }
        (at, records, last)
    }

    /// Classifies bytes that do not begin with a run. `last_seconds` is the time of the last valid record.
    pub(crate) fn classify(
        &self,
        bytes: &[u8],
        at_end: bool,
        last_seconds: Option<u32>,
    ) -> Classification {
        let Some(header) = self.header(bytes, 0) else {
            return match at_end {
                true => Classification::Damage(bytes.len(), DamageKind::Truncated),
                false => Classification::More(self.header_len),
            };
        };
        if !self.is_possible(&header) {
            return Classification::OutOfSync(DamageKind::Header);
        }
        let needed = self.record_len(&header) + self.header_len;
        match bytes.len() < needed && !at_end {
            true => Classification::More(needed),
            false => self.classify_record(&header, bytes, at_end, last_seconds),
        }
    }

    /// Classifies a record with a possible header, if no valid header follows it.
    fn classify_record(
        &self,
        header: &RecordHeader,
        bytes: &[u8],
        at_end: bool,
        last_seconds: Option<u32>,
    ) -> Classification {
        let end = self.record_len(header);
        if self.is_time_outlier(header, self.header(bytes, end), last_seconds) {
            return Classification::Damage(end, DamageKind::Time);
        }
        let inside = 1..end.min(bytes.len());
        match self.resync(bytes, inside, at_end, last_seconds.or(Some(header.seconds))) {
            Resync::At(at) => Classification::Damage(at, DamageKind::Header),
            Resync::Undecided { need, .. } => Classification::More(need),
            Resync::NotFound if bytes.len() < end => {
                Classification::Damage(bytes.len(), DamageKind::Truncated)
            }
            Resync::NotFound => Classification::Record(end),
        }
    }

    /// Whether the times before and after a record agree with each other, and its own time does not.
    fn is_time_outlier(
        &self,
        this: &RecordHeader,
        next: Option<RecordHeader>,
        last_seconds: Option<u32>,
    ) -> bool {
        let near =
            |header: &RecordHeader| last_seconds.is_none_or(|seconds| header.is_near(seconds));
        !near(this) && next.is_some_and(|next| self.is_plausible(&next) && near(&next))
    }

    /// Finds the first of `offsets` at which records begin.
    pub(crate) fn resync(
        &self,
        bytes: &[u8],
        offsets: Range<usize>,
        at_end: bool,
        last_seconds: Option<u32>,
    ) -> Resync {
        resync(offsets, |at| {
            self.check_sync(bytes, at, at_end, last_seconds)
        })
    }

    /// Checks whether several plausible headers in a row begin at `at`, or a few that lead to the end of the file.
    /// Their times must agree with each other. If these do not agree with `last_seconds`, more headers are needed.
    fn check_sync(
        &self,
        bytes: &[u8],
        at: usize,
        at_end: bool,
        last_seconds: Option<u32>,
    ) -> SyncCheck {
        let (mut at, mut count, mut needed) = (at, 0, SYNC_RECORDS);
        let mut near = last_seconds;
        while count < needed {
            let Some(header) = self.header(bytes, at) else {
                return self.check_sync_at_end(bytes, at, at_end, count);
            };
            let agrees = near.is_none_or(|seconds| header.is_near(seconds));
            if !self.is_plausible(&header) || !agrees && count > 0 {
                return SyncCheck::No;
            }
            if !agrees {
                needed = SYNC_RECORDS_AT_ANOTHER_TIME;
            }
            near = Some(header.seconds);
            at += self.record_len(&header);
            count += 1;
        }
        SyncCheck::Yes
    }

    /// Decides after `count` headers if the bytes end before the next one, at `at`. A single record must end with the
    /// file. The last of several may be cut off.
    fn check_sync_at_end(&self, bytes: &[u8], at: usize, at_end: bool, count: usize) -> SyncCheck {
        match (at_end, at.cmp(&bytes.len())) {
            (false, _) => SyncCheck::Undecided(at + self.header_len),
            (true, Ordering::Equal) if count > 0 => SyncCheck::Yes,
            (true, Ordering::Greater) if count > 1 => SyncCheck::Yes,
            (true, _) => SyncCheck::No,
        }
    }

    #[inline(always)]
    fn header(&self, bytes: &[u8], at: usize) -> Option<RecordHeader> {
        let header = bytes
            .get(at..)?
            .get(..self.header_len)?
            .first_chunk::<16>()?;
        Some(RecordHeader {
            seconds: self.endianness.u32(header, 0),
            fraction: self.endianness.u32(header, 4),
            caplen: self.endianness.u32(header, 8),
            wire_len: self.endianness.u32(header, 12),
        })
    }

    /// Returns the seconds of the first record's time.
    pub(crate) fn seconds(&self, bytes: &[u8]) -> Option<u32> {
        self.header(bytes, 0).map(|header| header.seconds)
    }

    /// Length of a record with its header, in bytes.
    fn record_len(&self, header: &RecordHeader) -> usize {
        self.header_len + header.caplen as usize
    }

    /// Whether a valid record can have this header. A header of zeros is impossible, because a preallocated file ends
    /// with zeros.
    fn is_possible(&self, header: &RecordHeader) -> bool {
        header.caplen <= self.caplen_max && header.wire_len > 0
    }

    /// Whether an ordinary record has this header.
    fn is_plausible(&self, header: &RecordHeader) -> bool {
        (1..=SNAPLEN_MAX).contains(&header.caplen)
            && (header.caplen..=RECORD_MAX as u32).contains(&header.wire_len)
            && u64::from(header.fraction) * u64::from(self.fraction_ns) < 1_000_000_000
    }

    /// Reads the first of whole records. Returns its frame and the bytes after it.
    #[inline(always)]
    pub(crate) fn split_record<'a>(&self, bytes: &'a [u8]) -> Option<(Frame<'a>, &'a [u8])> {
        let header = self.header(bytes, 0)?;
        let body = bytes.get(self.header_len..)?;
        let (bytes, rest) = body.split_at_checked(header.caplen as usize)?;
        let fraction_ns = u64::from(header.fraction) * u64::from(self.fraction_ns);
        let frame = Frame {
            timestamp_ns: u64::from(header.seconds) * 1_000_000_000 + fraction_ns,
            interface: 0,
            link_type: self.link_type,
            wire_len: header.wire_len.max(header.caplen),
            bytes,
            segment_size: 0,
            emulator_record: None,
        };
        Some((frame, rest))
    }
}
