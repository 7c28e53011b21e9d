// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file that a request may ask for at once (RFC 9110 §14.2): few, and not the same bytes again and again.

use hyper::{
    HeaderMap,
    header::{HeaderValue, RANGE},
};

/// Ranges of a request, at most. Each costs a read and some 100 bytes of the answer.
const RANGES_MAX: usize = 32;

/// Ranges that have bytes in common with another, at most.
const OVERLAPPING_MAX: usize = 2;

/// What a Range asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole file: it is no Range that makes sense, and then RFC 9110 §14.2 has a server ignore it.
    Whole,
    /// First and last byte of each part, none of them beyond the end.
    Parts(Vec<(u64, u64)>),
    /// Nothing that is there.
    Missing,
    /// Too many parts, or the same again and again.
    Refused,
}

impl RequestedRange {
    /// Reads the Range of a request for a file of `len` bytes.
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
        let Some(ranges) = named.map(Spec::read).collect::<Option<Vec<_>>>() else {
            return Self::Whole;
        };
        let parts: Vec<_> = ranges.iter().filter_map(|spec| spec.of(len)).collect();
        let mut sorted = parts.clone();
        sorted.sort_unstable();
        if overlapping(&sorted) > OVERLAPPING_MAX {
            return Self::Refused;
        }
        let empty = len == 0 && ranges.iter().any(|spec| matches!(spec, Spec::Last(1..)));
        match parts.is_empty() {
            false => Self::Parts(parts),
            true if empty || ranges.is_empty() => Self::Whole,
            true => Self::Missing,
        }
    }
}

/// One part, as asked for.
enum Spec {
    /// First and last byte.
    From(u64, u64),
    /// The last bytes.
    Last(u64),
}

impl Spec {
    fn read(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        match (first, last) {
            ("", count) => Some(Self::Last(number(count)?)),
            (first, "") => Some(Self::From(number(first)?, u64::MAX)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, last))
            }
        }
    }

    /// What of it a file of this length has.
    fn of(&self, len: u64) -> Option<(u64, u64)> {
        let end = len.checked_sub(1)?;
        match *self {
            Self::From(first, last) => (first <= end).then_some((first, last.min(end))),
            Self::Last(count) => (count > 0).then_some((len.saturating_sub(count), end)),
        }
    }
}

/// Digits alone; a number that is too large is beyond every file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// How many of these, in order, begin before another has ended.
fn overlapping(ranges: &[(u64, u64)]) -> usize {
    let mut count = 0;
    let mut at = 0;
    while at < ranges.len() {
        // Those that hang together.
        let (mut end, begin) = (ranges[at].1, at);
        at += 1;
        while at < ranges.len() && ranges[at].0 <= end {
            end = end.max(ranges[at].1);
            at += 1;
        }
        if at - begin > 1 {
            count += at - begin;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_many_ranges_and_more_than_two_that_overlap() {
        let many = |count: u64, step: u64| {
            let specs: Vec<_> = (0..count)
                .map(|number| format!("{}-{}", number * step, number * step + 9))
                .collect();
            format!("bytes={}", specs.join(","))
        };
        for (header, refused) in [
            ("bytes=0-9".to_owned(), false),
            ("bytes=0-9,5-14".to_owned(), false),
            ("bytes=0-9,10-19,20-29".to_owned(), false),
            ("bytes=0-9, 5-14 ,14-20".to_owned(), true),
            ("bytes=0-,0-,0-".to_owned(), true),
            ("bytes=-9,-8,-7".to_owned(), true),
            ("bytes=0-9,5-14,100-109,105-114".to_owned(), true),
            (many(32, 20), false),
            (many(33, 20), true),
            (many(1300, 1), true),
            ("bytes=x,y".to_owned(), false),
            ("lines=0-,0-,0-".to_owned(), false),
        ] {
            let refuses = RequestedRange::read(&header, 1000) == RequestedRange::Refused;
            assert_eq!(refuses, refused, "{header}");
        }
        let all = "bytes=0-18446744073709551615,1-,2-";
        let read = RequestedRange::read(all, u64::MAX);
        assert_eq!(read, RequestedRange::Refused);
    }

    #[test]
    fn asks_for_no_byte_that_is_not_there() {
        let parts = |parts: &[(u64, u64)]| RequestedRange::Parts(parts.to_vec());
        let (missing, whole) = (RequestedRange::Missing, RequestedRange::Whole);
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
            // Nothing of it is there: 416.
            ("bytes=1000-", 1000, &missing),
            ("bytes=99999999999999999999-", 1000, &missing),
            ("bytes=-0", 1000, &missing),
            ("bytes=0-", 0, &missing),
            ("bytes=-1", 0, &whole),
            // It makes no sense.
            ("bytes=5-2", 1000, &whole),
            ("bytes=+1-2", 1000, &whole),
            ("bytes=-+1", 1000, &whole),
            ("bytes=1", 1000, &whole),
            ("bytes=,", 1000, &whole),
            ("bytes=0-0,x", 1000, &whole),
            ("bytes", 1000, &whole),
        ] {
            let read = RequestedRange::read(header, len);
            assert_eq!(read, *wanted, "{header} of {len}");
        }
    }
}
