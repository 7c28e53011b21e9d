// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcap files (draft-ietf-opsawg-pcap): a file header, then records. The header of a record has 16 bytes: seconds,
//! fraction, captured length, length on the wire.
//!
//! Records have no magic number. A record counts as valid if the next record's header follows it, is plausible and has
//! a time at most a day away. If it does not, the reader looks inside the record for the offset where a run of headers
//! begins. So a wrong length costs a single record.

use super::endianness::Endianness;
use super::framing::{Classification, Resync, SyncCheck, resync};
use super::pcap_variant::{LengthOrder, variant};
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

/// Most seconds from the record before the last one of a file to that. No record after it shows whether a longer
/// silence was real.
const LAST_STEP_MAX_S: u32 = 365 * 86_400;

/// Offset of the lengths in a record header.
const LENGTHS: usize = 8;

/// Records from which the unit of fractions is found.
const UNIT_RECORDS: u32 = 16;

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

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
    length_order: LengthOrder,
    /// Time that replaces the records' own, in nanoseconds since 1970.
    pub(super) replaced_time_ns: Option<u64>,
    caplen_max: u32,
    pub(crate) snaplen: u32,
    pub(crate) link_type: LinkType,
}

/// Time of a record, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordTime {
    seconds: u32,
    fraction: u32,
}

impl RecordTime {
    pub(crate) fn is_near(self, other: Self) -> bool {
        self.seconds.abs_diff(other.seconds) <= TIME_STEP_MAX_S
    }

    /// Whether the last time of a file can follow this one: it is not earlier by a day, or later by a year.
    fn can_end_with(self, last: Self) -> bool {
        let range = self.seconds.saturating_sub(TIME_STEP_MAX_S)
            ..=self.seconds.saturating_add(LAST_STEP_MAX_S);
        range.contains(&last.seconds)
    }
}

/// Header of a record.
#[derive(Clone, Copy)]
struct RecordHeader {
    time: RecordTime,
    caplen: u32,
    wire_len: u32,
}

/// Whether a pcap file begins with these bytes.
pub(crate) fn is_magic(bytes: [u8; 4]) -> bool {
    variant(bytes).is_some()
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
            length_order: LengthOrder::of_version(
                endianness.u16(header, 4),
                endianness.u16(header, 6),
            ),
            replaced_time_ns: None,
            caplen_max: snaplen.clamp(SNAPLEN_MAX, RECORD_MAX as u32 - 28),
            snaplen,
            // The upper half describes the FCS. IP headers have lengths of their own, so it is not needed.
            link_type: LinkType::from_number(endianness.u32(header, 20) as u16),
        })
    }

    /// Sets what the file header leaves open as the first of `records` show it: the unit of fractions and the length of
    /// record headers. Fails with the number of bytes of records that are needed to decide.
    pub(crate) fn detect_layout(self, records: &[u8], at_end: bool) -> Result<Self, usize> {
        if self.header_lens.len() == 1 {
            return Ok(self);
        }
        if self.has_nanoseconds(records, at_end)? {
            Ok(Self {
                fraction_ns: 1,
                ..self
            })
        } else {
            self.detect_header_len(records, at_end)
        }
    }

    /// Whether most of the first records have fractions of a second or more in microseconds, and of less in
    /// nanoseconds. Some programs write nanoseconds with the magic number of microseconds.
    fn has_nanoseconds(&self, records: &[u8], at_end: bool) -> Result<bool, usize> {
        let (mut at, mut count, mut nanoseconds) = (0, 0, 0);
        while count < UNIT_RECORDS {
            match self.header(records, at) {
                None if !at_end => return Err(at + self.header_len),
                Some(header) if self.has_plausible_lengths(&header) => {
                    let in_nanoseconds = u64::from(header.time.fraction) < SECOND_NS;
                    nanoseconds += u32::from(in_nanoseconds && self.has_long_fraction(header.time));
                    at += self.record_len(&header);
                    count += 1;
                }
                _ => break,
            }
        }
        Ok(2 * nanoseconds > count)
    }

    /// Sets the length of record headers to the first one that makes a run of `records`, or to the usual one if none
    /// does.
    fn detect_header_len(self, records: &[u8], at_end: bool) -> Result<Self, usize> {
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

    /// Whether fractions have the same unit in both layouts.
    pub(crate) fn has_unit_of(&self, other: &Self) -> bool {
        self.fraction_ns == other.fraction_ns
    }

    /// Returns the layout for a record whose own time is replaced, by one in nanoseconds since 1970.
    pub(crate) fn with_time(self, time_ns: u64) -> Self {
        Self {
            replaced_time_ns: Some(time_ns),
            ..self
        }
    }

    /// Finds the run of whole, valid records at the beginning of `bytes`. Returns its length in bytes, the number of
    /// records and the time of the last one.
    pub(crate) fn run(&self, bytes: &[u8], at_end: bool) -> (usize, u64, Option<RecordTime>) {
        let (mut at, mut records, mut last) = (0, 0, None);
        let mut header = self.header(bytes, 0);
        while let Some(this) = header.filter(|header| self.is_possible(header)) {
            let end = at + self.record_len(&this);
            header = self.header(bytes, end);
            let is_valid = match &header {
                Some(next) => self.is_plausible(next) && next.time.is_near(this.time),
                None => at_end && end == bytes.len(),
            };
            if !is_valid {
                break;
            }
            (at, records, last) = (end, records + 1, Some(this.time));
        }
        (at, records, last)
    }

    /// Classifies bytes that do not begin with a run. `last` is the time of the last valid record.
    pub(crate) fn classify(
        &self,
        bytes: &[u8],
        at_end: bool,
        last: Option<RecordTime>,
    ) -> Classification {
        let Some(header) = self.header(bytes, 0) else {
            return if at_end {
                Classification::Damage(bytes.len(), DamageKind::Truncated)
            } else {
                Classification::More(self.header_len)
            };
        };
        if !self.is_possible(&header) {
            return Classification::OutOfSync(DamageKind::Header);
        }
        let needed = self.bytes_to_classify(&header, bytes);
        if bytes.len() < needed && !at_end {
            Classification::More(needed)
        } else {
            self.classify_record(&header, bytes, at_end, last)
        }
    }

    /// Returns the number of bytes with which a record can be classified: up to the next header, and if that is plausible,
    /// up to the one after it.
    fn bytes_to_classify(&self, header: &RecordHeader, bytes: &[u8]) -> usize {
        let end = self.record_len(header);
        let next = self.plausible_header(bytes, end);
        end + next.map_or(0, |next| self.record_len(&next)) + self.header_len
    }

    /// Classifies a record with a possible header, if no valid header follows it.
    fn classify_record(
        &self,
        header: &RecordHeader,
        bytes: &[u8],
        at_end: bool,
        last: Option<RecordTime>,
    ) -> Classification {
        let end = self.record_len(header);
        if let Some(time_ns) = self.replacement_ns(header, bytes, last) {
            return if self.is_plausible(header) {
                Classification::FarOff(end, time_ns)
            } else {
                Classification::Damage(end, DamageKind::Header)
            };
        }
        if self.is_followed_by_two(header, bytes, at_end) {
            return Classification::Record(end);
        }
        let inside = 1..end.min(bytes.len());
        match self.resync(bytes, inside, at_end, last.or(Some(header.time))) {
            Resync::At(at) => Classification::Damage(at, DamageKind::Header),
            Resync::Undecided { need, .. } => Classification::More(need),
            Resync::NotFound if bytes.len() < end => {
                Classification::Damage(bytes.len(), DamageKind::Truncated)
            }
            Resync::NotFound => Classification::Record(end),
        }
    }

    /// Whether two plausible headers follow a record, the second one near the first or near the record in time; or one whose
    /// record ends with the file. Then the record's length is right, and only a time is odd.
    fn is_followed_by_two(&self, this: &RecordHeader, bytes: &[u8], at_end: bool) -> bool {
        let end = self.record_len(this);
        let Some(next) = self.plausible_header(bytes, end) else {
            return false;
        };
        let next_end = end + self.record_len(&next);
        match self.plausible_header(bytes, next_end) {
            Some(after) => after.time.is_near(next.time) || after.time.is_near(this.time),
            None => at_end && next_end == bytes.len(),
        }
    }

    /// Returns the time that replaces a record's own, in nanoseconds since 1970, if the times of its neighbours agree with
    /// each other, and its own does not. The neighbours are the records before and after it, and the time is halfway between
    /// theirs. Of the first record of a file they are the two after it, and the time is that of the next.
    fn replacement_ns(
        &self,
        this: &RecordHeader,
        bytes: &[u8],
        last: Option<RecordTime>,
    ) -> Option<u64> {
        let end = self.record_len(this);
        let next = self.plausible_header(bytes, end)?;
        let other = match last {
            Some(last) => last,
            None => {
                self.plausible_header(bytes, end + self.record_len(&next))?
                    .time
            }
        };
        let is_far_off = next.time.is_near(other) && !this.time.is_near(other);
        let before = last.unwrap_or(next.time);
        is_far_off.then(|| {
            self.nanoseconds(before)
                .midpoint(self.nanoseconds(next.time))
        })
    }

    /// Returns the time that replaces that of the record in `bytes`, which ends the file: that of the record before, `last`,
    /// in nanoseconds since 1970. `None` if it is no single record, or its own time can follow that.
    pub(crate) fn replacement_at_end_ns(&self, bytes: &[u8], last: RecordTime) -> Option<u64> {
        let header = self.plausible_header(bytes, 0)?;
        let is_far_off = self.record_len(&header) == bytes.len() && !last.can_end_with(header.time);
        is_far_off.then(|| self.nanoseconds(last))
    }

    /// Finds the first of `offsets` at which records begin.
    pub(crate) fn resync(
        &self,
        bytes: &[u8],
        offsets: Range<usize>,
        at_end: bool,
        last: Option<RecordTime>,
    ) -> Resync {
        resync(bytes, offsets, LENGTHS, |at| match self.header(bytes, at) {
            // Most offsets are none of a record. The check of several records is not inlined.
            Some(header) if !self.is_plausible(&header) => SyncCheck::No,
            _ => self.check_sync(bytes, at, at_end, last),
        })
    }

    /// Checks whether several plausible headers in a row begin at `at`, or a few that lead to the end of the file.
    /// Their times must agree with each other. If these do not agree with `last`, more headers are needed.
    fn check_sync(
        &self,
        bytes: &[u8],
        at: usize,
        at_end: bool,
        last: Option<RecordTime>,
    ) -> SyncCheck {
        let (mut at, mut count, mut needed) = (at, 0, SYNC_RECORDS);
        let mut near = last;
        while count < needed {
            let Some(header) = self.header(bytes, at) else {
                return self.check_sync_at_end(bytes, at, at_end, count);
            };
            let agrees = near.is_none_or(|time| header.time.is_near(time));
            if !self.is_plausible(&header) || !agrees && count > 0 {
                return SyncCheck::No;
            }
            if !agrees {
                needed = SYNC_RECORDS_AT_ANOTHER_TIME;
            }
            near = Some(header.time);
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
        // No closure: the compiler called it for each offset of a damaged file, in two thirds of the time.
        let first = self.endianness.u32(header, LENGTHS);
        let second = self.endianness.u32(header, LENGTHS + 4);
        let (caplen, wire_len) = self.length_order.apply(first, second);
        Some(RecordHeader {
            time: RecordTime {
                seconds: self.endianness.u32(header, 0),
                fraction: self.endianness.u32(header, 4),
            },
            caplen,
            wire_len,
        })
    }

    fn plausible_header(&self, bytes: &[u8], at: usize) -> Option<RecordHeader> {
        self.header(bytes, at)
            .filter(|header| self.is_plausible(header))
    }

    /// Returns the first record's time.
    pub(crate) fn time(&self, bytes: &[u8]) -> Option<RecordTime> {
        self.header(bytes, 0).map(|header| header.time)
    }

    fn nanoseconds(&self, time: RecordTime) -> u64 {
        u64::from(time.seconds) * SECOND_NS + self.fraction_ns(time)
    }

    fn fraction_ns(&self, time: RecordTime) -> u64 {
        u64::from(time.fraction) * u64::from(self.fraction_ns)
    }

    /// Whether the fraction of a time is a second or more.
    pub(crate) fn has_long_fraction(&self, time: RecordTime) -> bool {
        self.fraction_ns(time) >= SECOND_NS
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
    #[inline]
    fn is_plausible(&self, header: &RecordHeader) -> bool {
        self.has_plausible_lengths(header) && !self.has_long_fraction(header.time)
    }

    #[inline]
    fn has_plausible_lengths(&self, header: &RecordHeader) -> bool {
        (1..=SNAPLEN_MAX).contains(&header.caplen)
            && (header.caplen..=RECORD_MAX as u32).contains(&header.wire_len)
    }

    /// Reads the first of whole records. Returns its frame and the bytes after it.
    #[inline(always)]
    pub(crate) fn split_record<'a>(&self, bytes: &'a [u8]) -> Option<(Frame<'a>, &'a [u8])> {
        let header = self.header(bytes, 0)?;
        let body = bytes.get(self.header_len..)?;
        let (bytes, rest) = body.split_at_checked(header.caplen as usize)?;
        let frame = Frame {
            timestamp_ns: match self.replaced_time_ns {
                Some(time_ns) => time_ns,
                None => self.nanoseconds(header.time),
            },
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
