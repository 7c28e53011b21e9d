// SPDX-License-Identifier: MIT OR Apache-2.0
//! States of the blocks of a file that is being written.

use crate::{
    blocks::{BlockHash, runs},
    part::journal::Record,
};
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    Writing,
    Written,
    Durable,
}

/// State and hash of each block. Memory per block: 33 bytes, 40 more if the block is inherited, and
/// 8 more while it is written but not durable.
pub(super) struct State {
    /// Block numbers that the states cover.
    pub(super) within: Range<u64>,
    pub(super) kinds: Vec<Kind>,
    pub(super) hashes: Vec<BlockHash>,
    pub(super) written: Vec<u64>,
    /// Blocks that an earlier run made durable, until they are checked: 40 bytes each.
    pub(super) inherited: Vec<Record>,
    /// Whether all missing blocks read as zeros.
    pub(super) clean: bool,
    pub(super) broken: bool,
}

impl State {
    pub(super) fn empty(within: Range<u64>) -> Self {
        let count = (within.end - within.start) as usize;
        Self {
            within,
            kinds: vec![Kind::Missing; count],
            hashes: vec![BlockHash::default(); count],
            written: Vec::new(),
            inherited: Vec::new(),
            clean: true,
            broken: false,
        }
    }

    /// States for the records of an earlier run. Records of blocks outside the range are ignored.
    pub(super) fn with(within: Range<u64>, records: &[Record]) -> Self {
        let mut state = Self::empty(within);
        state.clean = false;
        for (index, hash) in records {
            if let Some(at) = state.at(*index) {
                state.kinds[at] = Kind::Durable;
                state.hashes[at] = *hash;
            }
        }
        state.inherited = state.durable();
        state
            .inherited
            .retain(|(_, hash)| *hash != BlockHash::UNKNOWN);
        state
    }

    /// Position of a block in the vectors.
    pub(super) fn at(&self, index: u64) -> Option<usize> {
        let within = self.within.contains(&index);
        within.then(|| (index - self.within.start) as usize)
    }

    pub(super) fn all_hashed(&self) -> bool {
        !self.hashes.contains(&BlockHash::UNKNOWN)
    }

    pub(super) fn lacks(&self, index: u64) -> bool {
        let at = self.at(index);
        at.is_some_and(|at| self.kinds[at] == Kind::Missing)
    }

    pub(super) fn become_kind(&mut self, index: u64, kind: Kind) {
        if let Some(at) = self.at(index) {
            self.kinds[at] = kind;
        }
    }

    pub(super) fn claim(&mut self, index: u64) -> bool {
        let lacks = self.lacks(index);
        if lacks {
            self.become_kind(index, Kind::Writing);
        }
        lacks
    }

    pub(super) fn written(&mut self, index: u64, hash: BlockHash, done: bool) {
        let Some(at) = self.at(index) else { return };
        if done {
            self.kinds[at] = Kind::Written;
            self.hashes[at] = hash;
            self.written.push(index);
        } else {
            self.kinds[at] = Kind::Missing;
            self.clean = false;
        }
    }

    pub(super) fn take_written(&mut self) -> Vec<Record> {
        let mut indexes = std::mem::take(&mut self.written);
        indexes.sort_unstable();
        let record = |index: u64| Some((index, self.hashes[self.at(index)?]));
        indexes.into_iter().filter_map(record).collect()
    }

    /// Ends a commit. The kernel reports a failed sync only once, and then counts the pages as
    /// clean. So after a failure no block that was not durable before can be trusted.
    pub(super) fn settle(&mut self, batch: &[Record], done: bool) {
        self.broken |= !done;
        for (index, _) in batch.iter().filter(|_| done) {
            self.become_kind(*index, Kind::Durable);
        }
    }

    pub(super) fn durable(&self) -> Vec<Record> {
        let all = self.kinds.iter().zip(&self.hashes).zip(self.within.clone());
        all.filter(|((kind, _), _)| **kind == Kind::Durable)
            .map(|((_, hash), index)| (index, *hash))
            .collect()
    }

    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let all = self.kinds.iter().zip(self.within.clone());
        let missing = all.filter(|(kind, _)| **kind == Kind::Missing);
        runs(missing.map(|(_, index)| index))
    }
}
