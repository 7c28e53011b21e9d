// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file that a request may ask for at once (RFC 9110 §14.2): few, and not the same bytes again and again.

/// Ranges of a request, at most. Each costs a read and some 100 bytes of the answer.
const RANGES_MAX: usize = 32;

/// Ranges that have bytes in common with another, at most.
const OVERLAPPING_MAX: usize = 2;

/// What a Range asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The whole file: it is no Range that makes sense, and then RFC 9110 §14.2 has a server ignore it.
    Whole,
    /// This Range, with no byte beyond the end and nothing that is not there.
    Parts(String),
    /// Too many parts, or the same again and again.
    Refused,
}

/// Reads a Range for a file of `len` bytes.
pub(crate) fn read(header: &str, len: u64) -> Asked {
    let Some((unit, set)) = header.trim().split_once('=') else {
        return Asked::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let specs: Vec<&str> = set.split(',').map(str::trim).collect();
    if specs.len() > RANGES_MAX {
        return Asked::Refused;
    }
    let named = specs.into_iter().filter(|spec| !spec.is_empty());
    let Some(ranges) = named.map(Spec::read).collect::<Option<Vec<_>>>() else {
        return Asked::Whole;
    };
    let there: Vec<_> = ranges.iter().filter_map(|spec| spec.of(len)).collect();
    let mut sorted = there.clone();
    sorted.sort_unstable();
    if overlapping(&sorted) > OVERLAPPING_MAX {
        return Asked::Refused;
    }
    if there.is_empty() {
        let empty = len == 0 && ranges.iter().any(|spec| matches!(spec, Spec::Last(1..)));
        return match empty || ranges.is_empty() {
            true => Asked::Whole,
            false => Asked::Parts(format!("bytes={len}-")),
        };
    }
    let parts = there.iter().map(|(first, last)| format!("{first}-{last}"));
    Asked::Parts(format!("bytes={}", parts.collect::<Vec<_>>().join(",")))
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
            assert_eq!(read(&header, 1000) == Asked::Refused, refused, "{header}");
        }
        let all = "bytes=0-18446744073709551615,1-,2-";
        assert_eq!(read(all, u64::MAX), Asked::Refused);
    }

    #[test]
    fn asks_for_no_byte_that_is_not_there() {
        for (header, len, wanted) in [
            ("bytes=0-0", 1000, Some("bytes=0-0")),
            ("bytes=990-", 1000, Some("bytes=990-999")),
            ("bytes=-5", 1000, Some("bytes=995-999")),
            ("bytes=-2000", 1000, Some("bytes=0-999")),
            ("BYTES=1-2", 1000, Some("bytes=1-2")),
            ("bytes=0-18446744073709551615", 1000, Some("bytes=0-999")),
            ("bytes=1-99999999999999999999", 1000, Some("bytes=1-999")),
            ("bytes=-99999999999999999999", 1000, Some("bytes=0-999")),
            ("bytes=0-0,1000-", 1000, Some("bytes=0-0")),
            ("bytes=5-6,,0-1", 1000, Some("bytes=5-6,0-1")),
            // Nothing of it is there: 416.
            ("bytes=1000-", 1000, Some("bytes=1000-")),
            ("bytes=99999999999999999999-", 1000, Some("bytes=1000-")),
            ("bytes=-0", 1000, Some("bytes=1000-")),
            ("bytes=0-", 0, Some("bytes=0-")),
            ("bytes=-1", 0, None),
            // It makes no sense.
            ("bytes=5-2", 1000, None),
            ("bytes=+1-2", 1000, None),
            ("bytes=-+1", 1000, None),
            ("bytes=1", 1000, None),
            ("bytes=,", 1000, None),
            ("bytes=0-0,x", 1000, None),
            ("bytes", 1000, None),
        ] {
            let wanted = wanted.map_or(Asked::Whole, |parts| Asked::Parts(parts.to_owned()));
            assert_eq!(read(header, len), wanted, "{header} of {len}");
        }
    }
}
