// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file that a request may ask for at once (RFC 9110 §14.2): few, and not the same bytes again and again.

/// Ranges of a request, at most. Each costs a read and some 100 bytes of the answer.
const RANGES_MAX: usize = 32;

/// Ranges that have bytes in common with another, at most.
const OVERLAPPING_MAX: usize = 2;

/// Whether these ranges of a file of `len` bytes are to be refused. What cannot be read is for the library.
pub(super) fn are_refused(header: &str, len: u64) -> bool {
    let Some(set) = header.trim().strip_prefix("bytes=") else {
        return false;
    };
    let specs: Vec<&str> = set.split(',').map(str::trim).collect();
    if specs.len() > RANGES_MAX {
        return true;
    }
    let mut ranges: Vec<_> = specs.iter().filter_map(|spec| range(spec, len)).collect();
    ranges.sort_unstable();
    overlapping(&ranges) > OVERLAPPING_MAX
}

/// First and last byte.
fn range(spec: &str, len: u64) -> Option<(u64, u64)> {
    let last = len.checked_sub(1)?;
    match spec.split_once('-')? {
        ("", count) => Some((len.saturating_sub(count.parse().ok()?), last)),
        (first, "") => Some((first.parse().ok()?, last)),
        (first, end) => Some((first.parse().ok()?, end.parse::<u64>().ok()?.min(last))),
    }
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
            assert_eq!(are_refused(&header, 1000), refused, "{header}");
        }
        assert!(!are_refused("bytes=0-,0-,0-", 0));
        assert!(are_refused("bytes=0-18446744073709551615,1-,2-", u64::MAX));
    }
}
