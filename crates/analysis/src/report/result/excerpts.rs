// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single segments for the time–sequence chart, packed: columns of numbers in base64, 13 bytes a
//! segment, ACK or SACK block. `segments.js` draws them.

use base64::{Engine, engine::general_purpose::STANDARD};
use longhaul_flow::record::{Excerpt, Mark, MarkKind, Occasion};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Marks of a direction that is alone, as many as `longhaul_flow` keeps.
const MARKS_MAX: usize = 1 << 13;
/// Marks that large directions have always.
const MARKS_MIN: usize = 1 << 8;
/// Marks of all directions of a page together: 830 kB.
const MARKS_SUM_MAX: usize = 48 << 10;

/// An excerpt. Numbers in the columns are little endian.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packed {
    /// `beginning`, `loss` or `sample`.
    pub(crate) occasion: String,
    /// The first mark's time, ns since 1970.
    pub(crate) from_ns: u64,
    /// What times are counted in from there on, ns.
    pub(crate) tick_ns: u64,
    /// What numbers are relative to, in bytes from the first of the direction.
    pub(crate) base: i64,
    /// Marks.
    pub(crate) count: usize,
    /// What each is: 0 sent, 1 sent again, 2 ACK, 3 SACK; u8.
    pub(crate) kind: String,
    /// When; u32.
    pub(crate) at: String,
    /// First byte, or what an ACK acknowledges; i32.
    pub(crate) low: String,
    /// Behind the last byte, or the window's end, less than `low` if unknown; i32.
    pub(crate) high: String,
}

/// Marks that a direction may have, so that all together have not too many.
pub(crate) fn marks_max(lengths: &[usize]) -> usize {
    let most = fair_max(lengths, MARKS_MIN..=MARKS_MAX, MARKS_SUM_MAX);
    match sum_of(lengths, most) > MARKS_SUM_MAX {
        true => MARKS_SUM_MAX / lengths.len(),
        false => most,
    }
}

/// What each may have at most, within `bounds`, so that all together have no more than `sum_max` if that can be.
pub(crate) fn fair_max(lengths: &[usize], bounds: RangeInclusive<usize>, sum_max: usize) -> usize {
    let mut most = *bounds.end();
    while most > *bounds.start() && sum_of(lengths, most) > sum_max {
        most /= 2;
    }
    most
}

fn sum_of(lengths: &[usize], most: usize) -> usize {
    lengths.iter().map(|length| *length.min(&most)).sum()
}

/// How many marks there are.
pub(crate) fn marks(excerpts: &[Excerpt]) -> usize {
    excerpts.iter().map(|excerpt| excerpt.marks.len()).sum()
}

/// At most `most` marks: the beginning and losses before samples, each cut to what is left.
pub(crate) fn packed(excerpts: &[Excerpt], most: usize) -> Vec<Packed> {
    let mut left = most;
    let mut ranked: Vec<&Excerpt> = excerpts.iter().collect();
    ranked.sort_by_key(|excerpt| excerpt.occasion == Occasion::Sample);
    let mut packed: Vec<Packed> = ranked
        .into_iter()
        .filter_map(|excerpt| {
            let count = excerpt.marks.len().min(left);
            left -= count;
            (count > 1).then(|| Packed::of(excerpt, &excerpt.marks[..count]))
        })
        .collect();
    packed.sort_by_key(|one| one.from_ns);
    packed
}

impl Packed {
    fn of(excerpt: &Excerpt, marks: &[Mark]) -> Self {
        let times = || marks.iter().map(|mark| mark.at_ns);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let tick_ns = ((last - first) / u64::from(u32::MAX))
            .next_power_of_two()
            .max(1);
        let column = |of: &dyn Fn(&Mark) -> [u8; 4]| {
            STANDARD.encode(marks.iter().flat_map(of).collect::<Vec<u8>>())
        };
        Self {
            occasion: occasion(excerpt.occasion).to_owned(),
            from_ns: first,
            tick_ns,
            base: excerpt.base,
            count: marks.len(),
            kind: STANDARD.encode(
                marks
                    .iter()
                    .map(|mark| kind(mark.kind))
                    .collect::<Vec<u8>>(),
            ),
            at: column(&|mark| (((mark.at_ns - first) / tick_ns) as u32).to_le_bytes()),
            low: column(&|mark| mark.low.to_le_bytes()),
            high: column(&|mark| mark.high.to_le_bytes()),
        }
    }
}

fn occasion(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Beginning => "beginning",
        Occasion::Loss => "loss",
        Occasion::Sample => "sample",
    }
}

fn kind(kind: MarkKind) -> u8 {
    match kind {
        MarkKind::Sent => 0,
        MarkKind::SentAgain => 1,
        MarkKind::Ack => 2,
        MarkKind::Sack => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(occasion: Occasion, from_ns: u64, count: u64) -> Excerpt {
        let mark = |n: u64| Mark {
            at_ns: from_ns + n * 1_000,
            low: n as i32 - 1,
            high: n as i32,
            kind: MarkKind::SentAgain,
        };
        Excerpt {
            occasion,
            base: 7,
            marks: (0..count).map(mark).collect(),
        }
    }

    #[test]
    fn columns_are_little_endian_and_relative() {
        let packed = packed(&[excerpt(Occasion::Loss, 5_000, 2)], 10);
        let [one] = packed.as_slice() else {
            panic!("{packed:?}")
        };
        let bytes = |text: &str| STANDARD.decode(text).unwrap();
        assert_eq!(
            (one.from_ns, one.tick_ns, one.base, one.count),
            (5_000, 1, 7, 2)
        );
        assert_eq!(bytes(&one.at), [0, 0, 0, 0, 0xe8, 3, 0, 0]);
        assert_eq!(bytes(&one.low), [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(bytes(&one.kind), [1, 1]);
    }

    #[test]
    fn a_long_excerpt_has_longer_ticks() {
        let mut long = excerpt(Occasion::Loss, 0, 2);
        long.marks[1].at_ns = 100_000_000_000;
        let one = &packed(&[long], 10)[0];
        let last = STANDARD.decode(&one.at).unwrap();
        let ticks = u32::from_le_bytes(last[4..].try_into().unwrap());
        assert!(one.tick_ns > 1 && u64::from(ticks) * one.tick_ns > 99_999_999_900);
    }

    #[test]
    fn samples_go_first_when_there_are_too_many() {
        let all = [
            excerpt(Occasion::Sample, 100, 50),
            excerpt(Occasion::Loss, 5_000, 30),
            excerpt(Occasion::Loss, 90_000, 30),
        ];
        let kept = |most| {
            let packed = packed(&all, most);
            packed
                .iter()
                .map(|one| (one.from_ns, one.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(110), [(100, 50), (5_000, 30), (90_000, 30)]);
        assert_eq!(kept(70), [(100, 10), (5_000, 30), (90_000, 30)]);
        assert_eq!(kept(40), [(5_000, 30), (90_000, 10)]);
    }

    #[test]
    fn all_directions_together_have_a_bound() {
        assert_eq!(marks_max(&[8_192; 4]), 8_192);
        for directions in [7, 100, 2_000] {
            let most = marks_max(&vec![8_192; directions]);
            assert!(most * directions <= MARKS_SUM_MAX, "{directions}: {most}");
        }
    }
}
