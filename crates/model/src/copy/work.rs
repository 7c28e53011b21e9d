// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be sent, in lanes.
//!
//! One lane is *stealing*: every stream takes from it when it has room, so a slow stream carries less and none waits
//! for another at the end. As many lanes as streams is *striping*: block `b` of a file belongs to lane `b` mod lanes,
//! whatever a stream's speed, as the Data Reservoir put blocks on disks.

use std::{collections::VecDeque, ops::Range};

/// Bytes of small files that go together.
pub const PARCEL_LEN: u64 = 4 << 20;

/// Files that go together; 16 bytes each. Empty ones would never fill [`PARCEL_LEN`].
pub const FILES_MAX: usize = 1024;

/// What a receiver lacks of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A file of at most one block: so many bytes.
    Whole(u64),
    /// Ranges of blocks, in rising order and none empty.
    Blocks(Vec<Range<u64>>),
}

/// What one stream carries in one go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parcel {
    /// A block of a file.
    Block {
        /// The file's number.
        file: u64,
        /// The block's number.
        block: u64,
    },
    /// Small files, one after the other.
    Files(Vec<u64>),
}

/// What is to be sent.
#[derive(Debug)]
pub struct Work {
    lanes: Vec<VecDeque<Item>>,
}

#[derive(Debug)]
enum Item {
    Small {
        file: u64,
        len: u64,
    },
    Large {
        file: u64,
        left: VecDeque<Range<u64>>,
    },
    Again(Parcel),
}

impl Work {
    /// One lane steals, more are striped. At least 1.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        Self {
            lanes: (0..lanes.max(1)).map(|_| VecDeque::new()).collect(),
        }
    }

    /// A file is wanted; it comes behind those before it.
    pub fn need(&mut self, file: u64, missing: Missing) {
        let count = self.lanes.len() as u64;
        match missing {
            Missing::Whole(len) => {
                self.lanes[(file % count) as usize].push_back(Item::Small { file, len });
            }
            Missing::Blocks(ranges) => {
                for (number, lane) in (0..count).zip(&mut self.lanes) {
                    let own = |range: &Range<u64>| first_of(range, number, count).is_some();
                    let left: VecDeque<_> = ranges.iter().filter(|r| own(r)).cloned().collect();
                    if !left.is_empty() {
                        lane.push_back(Item::Large { file, left });
                    }
                }
            }
        }
    }

    /// What was sent and did not arrive goes first.
    pub fn again(&mut self, parcel: Parcel) {
        let count = self.lanes.len() as u64;
        let number = match &parcel {
            Parcel::Block { block, .. } => *block,
            Parcel::Files(files) => files.first().copied().unwrap_or_default(),
        };
        self.lanes[(number % count) as usize].push_front(Item::Again(parcel));
    }

    /// What a stream of `lane` carries next.
    pub fn next(&mut self, lane: usize) -> Option<Parcel> {
        let (number, count) = (lane as u64, self.lanes.len() as u64);
        let items = &mut self.lanes[lane];
        match items.front_mut()? {
            Item::Small { .. } => Some(Parcel::Files(pack(items))),
            Item::Large { file, left } => {
                let file = *file;
                let block = take(left, number, count);
                if left.is_empty() {
                    items.pop_front();
                }
                block.map(|block| Parcel::Block { file, block })
            }
            Item::Again(_) => match items.pop_front() {
                Some(Item::Again(parcel)) => Some(parcel),
                _ => None,
            },
        }
    }

    /// Whether nothing is left in any lane.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }
}

/// The small files at the front, as many as go together; at least one.
fn pack(items: &mut VecDeque<Item>) -> Vec<u64> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    while let Some(Item::Small { file, len }) = items.front()
        && files.len() < FILES_MAX
        && (files.is_empty() || bytes + len <= PARCEL_LEN)
    {
        files.push(*file);
        bytes += len;
        items.pop_front();
    }
    files
}

/// The first block of lane `number` of `count` in a range.
fn first_of(range: &Range<u64>, number: u64, count: u64) -> Option<u64> {
    let ahead = (number + count - range.start % count) % count;
    let first = range.start.checked_add(ahead)?;
    (first < range.end).then_some(first)
}

/// Takes a lane's next block, and the ranges of which it has none left.
fn take(left: &mut VecDeque<Range<u64>>, number: u64, count: u64) -> Option<u64> {
    let range = left.front_mut()?;
    let block = first_of(range, number, count)?;
    range.start = block + 1;
    if first_of(range, number, count).is_none() {
        left.pop_front();
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn files(range: Range<u64>) -> Parcel {
        Parcel::Files(range.collect())
    }

    #[test]
    fn small_files_go_together_and_large_ones_by_block() {
        let mut work = Work::new(1);
        for file in 0..3 {
            work.need(file, Missing::Whole(PARCEL_LEN / 2));
        }
        work.need(3, Missing::Blocks(vec![0..1, 5..6]));
        work.need(4, Missing::Whole(0));
        let all: Vec<_> = std::iter::from_fn(|| work.next(0)).collect();
        let block = |block| Parcel::Block { file: 3, block };
        assert_eq!(
            all,
            [files(0..2), files(2..3), block(0), block(5), files(4..5)]
        );
        assert!(work.is_empty());
    }

    #[test]
    fn a_file_larger_than_a_parcel_goes_alone_and_empty_ones_are_bounded() {
        let mut work = Work::new(1);
        work.need(0, Missing::Whole(PARCEL_LEN + 1));
        for file in 1..=FILES_MAX as u64 + 1 {
            work.need(file, Missing::Whole(0));
        }
        assert_eq!(work.next(0), Some(files(0..1)));
        assert_eq!(work.next(0), Some(files(1..FILES_MAX as u64 + 1)));
        let last = FILES_MAX as u64 + 1;
        assert_eq!(work.next(0), Some(files(last..last + 1)));
    }

    #[test]
    fn what_goes_again_goes_first() {
        let mut work = Work::new(1);
        work.need(1, Missing::Whole(1));
        work.again(Parcel::Block { file: 7, block: 9 });
        work.again(Parcel::Files(vec![8]));
        let all: Vec<_> = std::iter::from_fn(|| work.next(0)).collect();
        let again = Parcel::Block { file: 7, block: 9 };
        assert_eq!(all, [Parcel::Files(vec![8]), again, files(1..2)]);
    }

    proptest! {
        #[test]
        fn each_block_goes_once_and_in_its_lane(
            lanes in 1_usize..9,
            cuts in proptest::collection::btree_set(0_u64..200, 0..12),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let ranges: Vec<_> = cuts.chunks_exact(2).map(|two| two[0]..two[1]).collect();
            let wanted: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            let mut work = Work::new(lanes);
            work.need(5, Missing::Blocks(ranges));
            let mut seen = BTreeSet::new();
            for lane in 0..lanes {
                while let Some(Parcel::Block { file, block }) = work.next(lane) {
                    prop_assert_eq!(file, 5);
                    prop_assert_eq!(block % lanes as u64, lane as u64);
                    prop_assert!(seen.insert(block));
                }
            }
            prop_assert_eq!(seen, wanted);
            prop_assert!(work.is_empty());
        }
    }
}
