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

/// Result of parsing a Range header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole file. An invalid Range is ignored, as RFC 9110 §14.2 requires.
    Whole,
    /// First and last byte of each range, all within the file.
    Parts(Vec<(u64, u64)>),
    /// No range is within the file.
    Unsatisfiable,
    /// Too many or overlapping ranges.
    Refused,
}

impl RequestedRange {
    /// Parses the Range of a request for a file of `len` bytes.
    pub(crate) fn of(headers: &HeaderMap, len: u64) -> Self {
        let mut all = headers.get_all(RANGE).iter();
        match (all.next().map(HeaderValue::to_str), all.next()) {
            (Some(Ok(text)), None) => Self::read(text, len),
            (None | Some(Err(_)), None) => Self::Whole,
            _ => Self::Refused,
        }
    }

    fn read(text: &str, len: u64) -> Self {
        let Some((unit, set)) = text.trim().split_once('=') else {
            return Self::Whole;
        };
        if !unit.eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let specs: Vec<&str> = set.split(',').map(str::trim).collect();
        if specs.len() > RANGES_MAX {
            return Self::Refused;
        }
        let named = specs.into_iter().filter(|spec| !spec.is_empty());
        let Some(ranges) = named.map(read_range).collect::<Option<Vec<_>>>() else {
            return Self::Whole;
        };
        let parts: Vec<_> = ranges
            .iter()
            .filter_map(|range| range.within(len))
            .collect();
        // All of an empty file is its end.
        let is_end = |range: &RangeSpec| matches!(range, RangeSpec::Last(1..));
        match parts.is_empty() {
            _ if overlapping(&parts) > OVERLAPPING_MAX => Self::Refused,
            false => Self::Parts(parts),
            true if ranges.is_empty() || len == 0 && ranges.iter().any(is_end) => Self::Whole,
            true => Self::Unsatisfiable,
        }
    }
}

/// Range as written.
enum RangeSpec {
    /// First and last byte.
    From(u64, u64),
    /// Count of bytes at the end.
    Last(u64),
}

impl RangeSpec {
    /// Returns the range within a file of this length.
    fn within(&self, len: u64) -> Option<(u64, u64)> {
        let end = len.checked_sub(1)?;
        match *self {
            Self::From(first, last) => (first <= end).then_some((first, last.min(end))),
            Self::Last(count) => (count > 0).then_some((len.saturating_sub(count), end)),
        }
    }
}

fn read_range(text: &str) -> Option<RangeSpec> {
    match text.split_once('-')? {
        ("", count) => Some(RangeSpec::Last(number(count)?)),
        (first, "") => Some(RangeSpec::From(number(first)?, u64::MAX)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(RangeSpec::From(first, last))
        }
    }
}

/// Parses digits only. A number that is too large counts as beyond every file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Counts the ranges that overlap others.
fn overlapping(ranges: &[(u64, u64)]) -> usize {
    let overlap = |one: &(u64, u64), other: &(u64, u64)| one.0 <= other.1 && other.0 <= one.1;
    let count = |range| ranges.iter().filter(|other| overlap(range, other)).count();
    // Each overlaps itself.
    ranges.iter().filter(|range| count(range) > 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_few_ranges_within_the_file() {
        let parts = |parts: &[(u64, u64)]| RequestedRange::Parts(parts.to_vec());
        let (missing, whole) = (RequestedRange::Unsatisfiable, RequestedRange::Whole);
        let refused = RequestedRange::Refused;
        let many = |count: u64| {
            let specs: Vec<_> = (0..count).map(|at| format!("{0}-{0}", 2 * at)).collect();
            format!("bytes={}", specs.join(","))
        };
        let (most, too_many) = (many(32), many(33));
        for (header, len, wanted) in [
            ("bytes=0-0", 1000, &parts(&[(0, 0)])),
            ("bytes=990-", 1000, &parts(&[(990, 999)])),
            ("bytes=-5", 1000, &parts(&[(995, 999)])),
            ("bytes=-2000", 1000, &parts(&[(0, 999)])),
            ("BYTES=1-2", 1000, &parts(&[(1, 2)])),
            ("bytes=0-18446744073709551615", 1000, &parts(&[(0, 999)])),
            ("bytes=1-99999999999999999999", 1000, &parts(&[(1, 999)])),
            ("bytes=-99999999999999999999", 1000, &parts(&[(0, 999)])),
            ("bytes=0-0,1000-", 1000, &parts(&[(0, 0)])),
            ("bytes=5-6,,0-1", 1000, &parts(&[(5, 6), (0, 1)])),
            ("bytes=0-9,5-14", 1000, &parts(&[(0, 9), (5, 14)])),
            (&most, 1, &parts(&[(0, 0)])),
            // Many, or more than two that overlap.
            (&too_many, 1, &refused),
            ("bytes=0-9, 5-14 ,14-20", 1000, &refused),
            ("bytes=-9,-8,-7", 1000, &refused),
            ("bytes=0-9,5-14,100-109,105-114", 1000, &refused),
            ("bytes=0-18446744073709551615,1-,2-", u64::MAX, &refused),
            // No byte is within the file: 416.
            ("bytes=1000-", 1000, &missing),
            ("bytes=99999999999999999999-", 1000, &missing),
            ("bytes=-0", 1000, &missing),
            ("bytes=0-", 0, &missing),
            ("bytes=-1", 0, &whole),
            // Invalid.
            ("bytes=5-2", 1000, &whole),
            ("bytes=+1-2", 1000, &whole),
            ("bytes=-+1", 1000, &whole),
            ("bytes=1", 1000, &whole),
            ("bytes=,", 1000, &whole),
            ("bytes=0-0,x", 1000, &whole),
            ("bytes", 1000, &whole),
            ("lines=0-,0-,0-", 1000, &whole),
        ] {
            let read = RequestedRange::read(header, len);
            assert_eq!(read, *wanted, "{header} of {len}");
        }
    }
}
