// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file that a client asks for (RFC 9110 §14), of a file whose length is known. No I/O.

use hyper::{
    HeaderMap,
    header::{HeaderName, IF_RANGE, RANGE},
};

/// Part of a file that a response carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole file.
    Whole,
    /// From the first byte to the last, both included.
    Bytes(u64, u64),
    /// No byte: the file has none of the range.
    Nothing,
}

impl Part {
    /// One range is served, of a file that has not changed since `modified`; several of them, other units and what
    /// can't be read are as no range (§14.2).
    #[must_use]
    pub fn requested(headers: &HeaderMap, size: u64, modified: Option<&str>) -> Self {
        let field = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let unchanged = field(IF_RANGE).is_none_or(|date| Some(date.trim()) == modified);
        let ranges = field(RANGE).filter(|_| unchanged);
        let range = ranges.and_then(|ranges| ranges.trim().strip_prefix("bytes="));
        range
            .and_then(|range| Self::read(range, size))
            .unwrap_or(Self::Whole)
    }

    fn read(range: &str, size: u64) -> Option<Self> {
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| {
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                Some(text.parse().unwrap_or(u64::MAX))
            } else {
                None
            }
        };
        let (first, last) = match (first, last) {
            ("", "") => return None,
            ("", count) => (size.saturating_sub(number(count)?), u64::MAX),
            (first, "") => (number(first)?, u64::MAX),
            (first, last) => (number(first)?, number(last)?),
        };
        if first > last {
            return None;
        }
        Some(if first < size {
            Self::Bytes(first, last.min(size - 1))
        } else {
            Self::Nothing
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(fields: &[(HeaderName, &str)]) -> Part {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        Part::requested(
            &fields.collect(),
            1000,
            Some("Sun, 06 Nov 1994 08:49:37 GMT"),
        )
    }

    #[test]
    fn parses_a_single_range() {
        use Part::*;
        for (range, part) in [
            ("bytes=0-0", Bytes(0, 0)),
            ("bytes=10-19", Bytes(10, 19)),
            ("bytes=990-", Bytes(990, 999)),
            ("bytes=990-2000", Bytes(990, 999)),
            ("bytes=-10", Bytes(990, 999)),
            ("bytes=-2000", Bytes(0, 999)),
            ("bytes=0-99999999999999999999999", Bytes(0, 999)),
            ("bytes=1000-", Nothing),
            ("bytes=-0", Nothing),
            ("bytes=99999999999999999999999-", Nothing),
            ("bytes=2-1", Whole),
            ("bytes=0-1,5-6", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=-", Whole),
            ("lines=1-2", Whole),
            ("bytes", Whole),
        ] {
            assert_eq!(requested(&[(RANGE, range)]), part, "{range}");
        }
        assert_eq!(requested(&[]), Whole);
    }

    #[test]
    fn sends_a_changed_file_whole() {
        let range = (RANGE, "bytes=1-2");
        for (condition, part) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Part::Bytes(1, 2)),
            ("Sun, 06 Nov 1994 08:49:38 GMT", Part::Whole),
            ("\"an-etag\"", Part::Whole),
        ] {
            assert_eq!(
                requested(&[range.clone(), (IF_RANGE, condition)]),
                part,
                "{condition}"
            );
        }
    }
}
