// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of a file's blocks.

use crate::protocol::message::Portion;
use longhaul_store::{
    blocks::Blocks,
    entry::{Kind, Version},
};
use std::ops::Range;

/// Blocks of a file: ordered ranges that do not overlap, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockSet(Vec<Range<u64>>);

impl BlockSet {
    /// Returns the blocks of a portion of a file; `None` if the file cannot have them.
    pub(super) fn of(portion: &Portion, blocks: Blocks) -> Option<Self> {
        let count = blocks.count();
        let ranges = match portion {
            Portion::Whole | Portion::Finalize => std::iter::once(0..count).collect(),
            Portion::Blocks(within) => {
                let start = within.start.min(count);
                std::iter::once(start..within.end.clamp(start, count)).collect()
            }
            Portion::KeepPiece(ranges) | Portion::JoinPiece(ranges) => {
                let mut end = 0;
                let valid = ranges.iter().all(|range| {
                    let valid = end <= range.start && range.start < range.end && range.end <= count;
                    end = range.end;
                    valid
                });
                (valid && !ranges.is_empty()).then(|| ranges.clone())?
            }
        };
        Some(Self(ranges))
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the parts of `runs` that are in this set.
    pub(super) fn intersection(&self, runs: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut common = Vec::new();
        let (mut own, mut others) = (self.0.iter().peekable(), runs.iter().peekable());
        while let (Some(one), Some(other)) = (own.peek(), others.peek()) {
            let both = one.start.max(other.start)..one.end.min(other.end);
            if both.start < both.end {
                common.push(both);
            }
            if one.end <= other.end {
                own.next();
            } else {
                others.next();
            }
        }
        common
    }
}

/// Reduces a file's version to size and modification time for pieces. A whole file counts as unchanged by
/// these as well. The rest of the version changes with each change of mode, and differs between hosts that
/// have a copy.
pub(super) fn reduce_version(kind: Kind, portion: &Portion) -> Kind {
    match (kind, portion) {
        (Kind::File { version, sparse }, Portion::KeepPiece(_) | Portion::JoinPiece(_)) => {
            Kind::File {
                version: Version {
                    changed: version.modified,
                    inode: 0,
                    device: 0,
                    ..version
                },
                sparse,
            }
        }
        (kind, _) => kind,
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::single_range_in_vec_init,
        reason = "the test needs a range of blocks"
    )]
    use super::*;
    use longhaul_store::blocks::BLOCK_LEN;
    use proptest::prelude::*;

    fn wanted(ranges: &[Range<u64>], count: u64) -> Option<BlockSet> {
        BlockSet::of(
            &Portion::KeepPiece(ranges.to_vec()),
            Blocks::new(count * BLOCK_LEN),
        )
    }

    #[test]
    fn rejects_invalid_block_ranges() {
        assert!(wanted(&[0..2, 2..3, 5..10], 10).is_some());
        let invalid: [&[Range<u64>]; 6] = [
            &[],
            &[3..3],
            &[9..11],
            &[5..6, 0..2],
            &[0..3, 2..4],
            #[allow(clippy::reversed_empty_ranges)]
            &[4..2],
        ];
        for ranges in invalid {
            assert_eq!(wanted(ranges, 10), None, "{ranges:?}");
        }
        let far = BlockSet::of(&Portion::Blocks(7..u64::MAX), Blocks::new(10 * BLOCK_LEN));
        assert_eq!(far.unwrap().ranges(), [7..10]);
    }

    /// Ranges of blocks below 60.
    fn runs() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec(any::<bool>(), 60).prop_map(|blocks| {
            let numbered = (0..).zip(blocks).filter(|(_, there)| *there);
            numbered.fold(Vec::<Range<u64>>::new(), |mut runs, (block, _)| {
                match runs.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => runs.push(block..block + 1),
                }
                runs
            })
        })
    }

    proptest! {
        #[test]
        fn intersection_has_blocks_of_both_sets(own in runs(), other in runs()) {
            prop_assume!(!own.is_empty());
            let wanted = wanted(&own, 60).unwrap();
            let blocks = |runs: &[Range<u64>]| runs.iter().cloned().flatten().collect::<Vec<u64>>();
            let both: Vec<u64> = blocks(&other).into_iter().filter(|block| blocks(&own).contains(block)).collect();
            prop_assert_eq!(blocks(&wanted.intersection(&other)), both);
        }
    }
}
