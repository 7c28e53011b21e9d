// SPDX-License-Identifier: MIT OR Apache-2.0
//! States of the blocks of a file that is being written.

use crate::{
    blocks::{BlockHash, to_ranges},
    part::journal::BlockRecord,
};
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    Missing,
    Writing,
    Written,
    Durable,
}

/// State and hash of each block. Memory per block: 33 bytes, 40 more if the block is inherited, and
/// 8 more while it is written but not durable.
pub(super) struct BlockStates {
    /// Block numbers that the states cover.
    pub(super) range: Range<u64>,
    pub(super) states: Vec<BlockState>,
    pub(super) hashes: Vec<BlockHash>,
    pub(super) written: Vec<u64>,
    /// Blocks that an earlier run made durable, until they are checked: 40 bytes each.
    pub(super) inherited: Vec<BlockRecord>,
    /// Whether all missing blocks read as zeros.
    pub(super) reads_as_zeros: bool,
    pub(super) commit_failed: bool,
}

impl BlockStates {
    pub(super) fn empty(range: Range<u64>) -> Self {
        let count = (range.end - range.start) as usize;
        Self {
            range,
            states: vec![BlockState::Missing; count],
            hashes: vec![BlockHash::default(); count],
            written: Vec::new(),
            inherited: Vec::new(),
            reads_as_zeros: true,
            commit_failed: false,
        }
    }

    /// States for the records of an earlier run. Records of blocks outside the range are ignored.
    pub(super) fn from_records(range: Range<u64>, records: &[BlockRecord]) -> Self {
        let mut state = Self::empty(range);
        state.reads_as_zeros = false;
        for (index, hash) in records {
            if let Some(at) = state.position(*index) {
                state.states[at] = BlockState::Durable;
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
    pub(super) fn position(&self, index: u64) -> Option<usize> {
        let range = self.range.contains(&index);
        range.then(|| (index - self.range.start) as usize)
    }

    pub(super) fn all_hashed(&self) -> bool {
        !self.hashes.contains(&BlockHash::UNKNOWN)
    }

    pub(super) fn is_missing(&self, index: u64) -> bool {
        let at = self.position(index);
        at.is_some_and(|at| self.states[at] == BlockState::Missing)
    }

    pub(super) fn set_state(&mut self, index: u64, kind: BlockState) {
        if let Some(at) = self.position(index) {
            self.states[at] = kind;
        }
    }

    pub(super) fn claim(&mut self, index: u64) -> bool {
        let is_missing = self.is_missing(index);
        if is_missing {
            self.set_state(index, BlockState::Writing);
        }
        is_missing
    }

    pub(super) fn finish_write(&mut self, index: u64, hash: BlockHash, done: bool) {
        let Some(at) = self.position(index) else {
            return;
        };
        if done {
            self.states[at] = BlockState::Written;
            self.hashes[at] = hash;
            self.written.push(index);
        } else {
            self.states[at] = BlockState::Missing;
            self.reads_as_zeros = false;
        }
    }

    pub(super) fn take_written(&mut self) -> Vec<BlockRecord> {
        let mut indexes = std::mem::take(&mut self.written);
        indexes.sort_unstable();
        let record = |index: u64| Some((index, self.hashes[self.position(index)?]));
        indexes.into_iter().filter_map(record).collect()
    }

    /// Ends a commit. The kernel reports a failed sync only once, and then counts the pages as
    /// clean. So after a failure no block that was not durable before can be trusted.
    pub(super) fn finish_commit(&mut self, batch: &[BlockRecord], done: bool) {
        self.commit_failed |= !done;
        for (index, _) in batch.iter().filter(|_| done) {
            self.set_state(*index, BlockState::Durable);
        }
    }

    pub(super) fn durable(&self) -> Vec<BlockRecord> {
        let all = self.states.iter().zip(&self.hashes).zip(self.range.clone());
        all.filter(|((kind, _), _)| **kind == BlockState::Durable)
            .map(|((_, hash), index)| (index, *hash))
            .collect()
    }

    /// Returns whether all blocks of a range are durable.
    pub(super) fn are_durable(&self, blocks: &Range<u64>) -> bool {
        blocks.clone().all(|index| {
            let at = self.position(index);
            at.is_some_and(|at| self.states[at] == BlockState::Durable)
        })
    }

    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let all = self.states.iter().zip(self.range.clone());
        let missing = all.filter(|(kind, _)| **kind == BlockState::Missing);
        to_ranges(missing.map(|(_, index)| index))
    }
}
