// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a copy. Every stream takes from it when it has room, so a slow stream carries less and none waits for
//! another at the end.

use std::{collections::VecDeque, ops::Range};

/// Bytes of small files that go together.
pub(crate) const PARCEL_LEN: u64 = 4 << 20;

/// Files that go together; 16 bytes each. Empty ones would never fill [`PARCEL_LEN`].
const FILES_MAX: usize = 1024;

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
        left: VecDeque<Range<u64>>,
    },
    Again(Parcel),
}

impl Work {
    /// Adds what is wanted of a file; it comes behind those before it.
    pub fn need(&mut self, file: u64, missing: Missing) {
        match missing {
            Missing::Whole(len) => self.items.push_back(Item::Small { file, len }),
            Missing::Blocks(ranges) if ranges.is_empty() => {}
            Missing::Blocks(ranges) => self.items.push_back(Item::Large {
                file,
                left: ranges.into(),
            }),
        }
    }

    /// Adds what was sent and did not arrive. It goes first.
    pub fn again(&mut self, parcel: Parcel) {
        self.items.push_front(Item::Again(parcel));
    }

    /// Takes what a stream carries next.
    pub fn take(&mut self) -> Option<Parcel> {
        match self.items.front_mut()? {
            Item::Small { .. } => Some(Parcel::Files(pack(&mut self.items))),
            Item::Large { file, left } => {
                let file = *file;
                let block = first_block(left);
                if left.is_empty() {
                    self.items.pop_front();
                }
                block.map(|block| Parcel::Block { file, block })
            }
            Item::Again(_) => match self.items.pop_front() {
                Some(Item::Again(parcel)) => Some(parcel),
                _ => None,
            },
        }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
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

/// Takes the next block, and its range with the last one.
fn first_block(left: &mut VecDeque<Range<u64>>) -> Option<u64> {
    let range = left.front_mut()?;
    let block = range.next()?;
    if range.is_empty() {
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
        let mut work = Work::default();
        for file in 0..3 {
            work.need(file, Missing::Whole(PARCEL_LEN / 2));
        }
        work.need(3, Missing::Blocks(vec![0..1, 5..6]));
        work.need(4, Missing::Whole(0));
        let all: Vec<_> = std::iter::from_fn(|| work.take()).collect();
        let block = |block| Parcel::Block { file: 3, block };
        assert_eq!(
            all,
            [files(0..2), files(2..3), block(0), block(5), files(4..5)]
        );
        assert!(work.is_empty());
    }

    #[test]
    fn a_file_larger_than_a_parcel_goes_alone_and_empty_ones_are_bounded() {
        let mut work = Work::default();
        work.need(0, Missing::Whole(PARCEL_LEN + 1));
        for file in 1..=FILES_MAX as u64 + 1 {
            work.need(file, Missing::Whole(0));
        }
        assert_eq!(work.take(), Some(files(0..1)));
        assert_eq!(work.take(), Some(files(1..FILES_MAX as u64 + 1)));
        let last = FILES_MAX as u64 + 1;
        assert_eq!(work.take(), Some(files(last..last + 1)));
    }

    #[test]
    fn what_goes_again_goes_first() {
        let mut work = Work::default();
        work.need(1, Missing::Whole(1));
        work.again(Parcel::Block { file: 7, block: 9 });
        work.again(Parcel::Files(vec![8]));
        let all: Vec<_> = std::iter::from_fn(|| work.take()).collect();
        let again = Parcel::Block { file: 7, block: 9 };
        assert_eq!(all, [Parcel::Files(vec![8]), again, files(1..2)]);
    }

    proptest! {
        #[test]
        fn each_block_goes_once(
            cuts in proptest::collection::btree_set(0_u64..200, 0..12),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let ranges: Vec<_> = cuts.chunks_exact(2).map(|two| two[0]..two[1]).collect();
            let wanted: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            let mut work = Work::default();
            work.need(5, Missing::Blocks(ranges));
            let mut seen = BTreeSet::new();
            while let Some(Parcel::Block { file, block }) = work.take() {
                prop_assert_eq!(file, 5);
                prop_assert!(seen.insert(block));
            }
            prop_assert_eq!(seen, wanted);
            prop_assert!(work.is_empty());
        }
    }
}
