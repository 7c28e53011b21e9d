// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a copy: all that is still to be sent. Every stream takes from it when it has room, so a slow stream
//! carries less, and no stream waits for another at the end.

use std::{collections::VecDeque, ops::Range};

/// Bytes of the small files in one parcel, at most. A single file may be larger.
pub(crate) const PARCEL_LEN: u64 = 4 << 20;

/// Files in one parcel, at most: empty files would never fill [`PARCEL_LEN`]. Memory: 16 bytes each.
const FILES_MAX: usize = 1024;

/// The part of a file that the receiver lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The whole of a file that has at most one block, with its length in bytes.
    Whole(u64),
    /// Ranges of blocks, in rising order. No range is empty.
    Blocks(Vec<Range<u64>>),
}

/// A unit of work, which one stream carries.
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

/// The work that is left, in the order in which it is sent.
#[derive(Debug, Default)]
pub struct Work {
    items: VecDeque<Item>,
}

#[derive(Debug)]
enum Item {
    Small {
        file: u64,
        len: u64,
    },
    Large {
        file: u64,
        ranges: VecDeque<Range<u64>>,
    },
    Resend(Parcel),
}

impl Work {
    /// Adds the missing part of a file, behind all files before it.
    pub fn add(&mut self, file: u64, missing: Missing) {
        match missing {
            Missing::Whole(len) => self.items.push_back(Item::Small { file, len }),
            Missing::Blocks(ranges) if ranges.is_empty() => {}
            Missing::Blocks(ranges) => self.items.push_back(Item::Large {
                file,
                ranges: ranges.into(),
            }),
        }
    }

    /// Adds a parcel that was sent and did not arrive, in front of all other work.
    pub fn requeue(&mut self, parcel: Parcel) {
        self.items.push_front(Item::Resend(parcel));
    }

    /// Takes the next parcel for a stream. `None` if no work is left.
    pub fn next_parcel(&mut self) -> Option<Parcel> {
        match self.items.front_mut()? {
            Item::Small { .. } => Some(Parcel::Files(take_small_files(&mut self.items))),
            Item::Large { file, ranges } => {
                let file = *file;
                let block = take_block(ranges);
                if ranges.is_empty() {
                    self.items.pop_front();
                }
                block.map(|block| Parcel::Block { file, block })
            }
            Item::Resend(_) => match self.items.pop_front() {
                Some(Item::Resend(parcel)) => Some(parcel),
                _ => None,
            },
        }
    }

    /// Whether no work is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Takes the small files at the front: as many as one parcel holds, and at least one.
fn take_small_files(items: &mut VecDeque<Item>) -> Vec<u64> {
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

/// Takes the next block. Removes its range with the last block.
fn take_block(ranges: &mut VecDeque<Range<u64>>) -> Option<u64> {
    let range = ranges.front_mut()?;
    let block = range.next()?;
    if range.is_empty() {
        ranges.pop_front();
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
    fn batches_small_files_and_sends_large_ones_by_block() {
        let mut work = Work::default();
        for file in 0..3 {
            work.add(file, Missing::Whole(PARCEL_LEN / 2));
        }
        work.add(3, Missing::Blocks(vec![0..1, 5..6]));
        work.add(4, Missing::Whole(0));
        let all: Vec<_> = std::iter::from_fn(|| work.next_parcel()).collect();
        let block = |block| Parcel::Block { file: 3, block };
        assert_eq!(
            all,
            [files(0..2), files(2..3), block(0), block(5), files(4..5)]
        );
        assert!(work.is_empty());
    }

    #[test]
    fn sends_files_above_the_parcel_length_alone_and_bounds_empty_ones() {
        let mut work = Work::default();
        work.add(0, Missing::Whole(PARCEL_LEN + 1));
        for file in 1..=FILES_MAX as u64 + 1 {
            work.add(file, Missing::Whole(0));
        }
        assert_eq!(work.next_parcel(), Some(files(0..1)));
        assert_eq!(work.next_parcel(), Some(files(1..FILES_MAX as u64 + 1)));
        let last = FILES_MAX as u64 + 1;
        assert_eq!(work.next_parcel(), Some(files(last..last + 1)));
    }

    #[test]
    fn sends_returned_parcels_first() {
        let mut work = Work::default();
        work.add(1, Missing::Whole(1));
        work.requeue(Parcel::Block { file: 7, block: 9 });
        work.requeue(Parcel::Files(vec![8]));
        let all: Vec<_> = std::iter::from_fn(|| work.next_parcel()).collect();
        let again = Parcel::Block { file: 7, block: 9 };
        assert_eq!(all, [Parcel::Files(vec![8]), again, files(1..2)]);
    }

    proptest! {
        #[test]
        fn takes_each_block_once(
            cuts in proptest::collection::btree_set(0_u64..200, 0..12),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let ranges = cuts.as_chunks().0.iter().map(|&[start, end]| start..end);
            let ranges: Vec<_> = ranges.collect();
            let expected: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            let mut work = Work::default();
            work.add(5, Missing::Blocks(ranges));
            let mut seen = BTreeSet::new();
            while let Some(Parcel::Block { file, block }) = work.next_parcel() {
                prop_assert_eq!(file, 5);
                prop_assert!(seen.insert(block));
            }
            prop_assert_eq!(seen, expected);
            prop_assert!(work.is_empty());
        }
    }
}
