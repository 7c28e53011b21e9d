// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that a request may ask for (RFC 9110 §14.2): few, and without repeated bytes.

use hyper::{
    HeaderMap,
    header::{HeaderValue, RANGE},
};

/// Most ranges in a request. Each costs a read and some 100 bytes of the response.
const RANGES_MAX: usize = 32;

/// Most ranges that overlap another one.
const OVERLAPPING_MAX: usize = 2;

/// First and last byte.
pub(crate) type Range = (u64, u64);

/// Result of parsing a Range header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole file. An invalid Range is ignored, as RFC 9110 §14.2 requires, and so is one of an empty file.
    Whole,
    /// Ranges within the file.
    Parts(Vec<Range>),
    /// The ranges are beyond the end, too many, or overlap.
    Refused,
}

impl RequestedRange {
    /// Parses the Range of a request for a file of `len` bytes.
    pub(crate) fn of(headers: &HeaderMap, len: u64) -> Self {
        let mut all = headers.get_all(RANGE).iter();
        match (all.next().map(HeaderValue::to_str), all.next()) {
            (_, Some(_)) => Self::Refused,
            (Some(Ok(text)), None) if len > 0 => Self::read(text, len),
            _ => Self::Whole,
        }
    }

    fn read(text: &str, len: u64) -> Self {
        let Some((unit, set)) = text.trim().split_once('=') else {
            return Self::Whole;
        };
        let specs = set.split(',').map(str::trim);
        if !unit.eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        } else if specs.clone().count() > RANGES_MAX {
            return Self::Refused;
        }
        let named = specs.filter(|spec| !spec.is_empty());
        let ranges: Option<Vec<_>> = named.map(|spec| read_range(spec, len)).collect();
        let mut ranges = ranges.unwrap_or_default();
        if ranges.is_empty() {
            return Self::Whole;
        }
        ranges.retain(|(first, _)| *first < len);
        if ranges.is_empty() || overlapping(&ranges) > OVERLAPPING_MAX {
            return Self::Refused;
        }
        Self::Parts(ranges)
    }
}

/// Parses a range. One that is beyond the end begins there.
fn read_range(text: &str, len: u64) -> Option<Range> {
    let (first, last) = match text.split_once('-')? {
        ("", count) => (len.saturating_sub(number(count)?), u64::MAX),
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    (first <= last).then_some((first.min(len), last.min(len - 1)))
}

/// Parses digits only. A number that is too large counts as the largest.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Counts the ranges that overlap others.
fn overlapping(ranges: &[Range]) -> usize {
    let overlap = |one: &Range, other: &Range| one.0 <= other.1 && other.0 <= one.1;
    let count = |range| ranges.iter().filter(|other| overlap(range, other)).count();
    // Each overlaps itself.
    ranges.iter().filter(|range| count(range) > 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_few_ranges_within_the_file() {
        let many = |count: u64| {
            let specs: Vec<_> = (0..count).map(|at| format!("{0}-{0}", 2 * at)).collect();
            specs.join(",")
        };
        for (set, wanted) in [
            ("0-0", vec![(0, 0)]),
            ("990-", vec![(990, 999)]),
            ("-5", vec![(995, 999)]),
            ("-99999999999999999999", vec![(0, 999)]),
            ("1-99999999999999999999", vec![(1, 999)]),
            ("0-0,1000-", vec![(0, 0)]),
            ("5-6,,0-1", vec![(5, 6), (0, 1)]),
            ("0-9,5-14", vec![(0, 9), (5, 14)]),
            (&many(32), (0..32).map(|at| (2 * at, 2 * at)).collect()),
        ] {
            let read = RequestedRange::read(&format!("Bytes={set}"), 1000);
            assert_eq!(read, RequestedRange::Parts(wanted), "{set}");
        }
        // Many, more than two that overlap, or beyond the end.
        let overlapping = ["0-9, 5-14 ,14-20", "-9,-8,-7", "0-9,5-14,100-109,105-114"];
        let beyond = [&*many(33), "1000-", "99999999999999999999-", "-0"];
        for set in overlapping.into_iter().chain(beyond) {
            let read = RequestedRange::read(&format!("bytes={set}"), 1000);
            assert_eq!(read, RequestedRange::Refused, "{set}");
        }
        for invalid in
            "bytes=5-2 bytes=+1-2 bytes=-+1 bytes=1 bytes=, bytes=0-0,x bytes x=0-".split(' ')
        {
            assert_eq!(RequestedRange::read(invalid, 1000), RequestedRange::Whole);
        }
    }
}
