// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of a block: what both ends compare when the target has another version of a file.

use longhaul_store::blocks::BLOCK_LEN;

/// First bytes of a section's BLAKE3 hash. Two sections with the same are taken for equal; the hash of their block shows
/// if they are not.
pub type SectionHash = [u8; 8];

/// Maximum hashes that are compared of a file. They take 512 KiB of memory at either end.
pub const SECTIONS_MAX: usize = 65_536;

/// Length of the shortest sections: a block has 64 of them, one for each bit of a `u64`.
const LEN_MIN: u64 = BLOCK_LEN / 64;

/// Division of a file's blocks into sections of 64 KiB. Those of files of more than 4 GiB are longer, up to a block, so
/// that there are at most [`SECTIONS_MAX`] in 256 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sections {
    len: usize,
}

impl Sections {
    /// Returns the division of a file of this length in bytes.
    #[must_use]
    pub fn of(file_len: u64) -> Self {
        let lengths = std::iter::successors(Some(LEN_MIN), |len| Some(len * 2));
        let is_enough = |len: &u64| file_len.div_ceil(*len) <= SECTIONS_MAX as u64;
        let len = lengths.take_while(|len| *len < BLOCK_LEN).find(is_enough);
        Self {
            len: len.unwrap_or(BLOCK_LEN) as usize,
        }
    }

    /// Hashes the sections of a block.
    pub fn hashes(self, block: &[u8]) -> impl Iterator<Item = SectionHash> {
        block.chunks(self.len).map(hash)
    }

    /// Returns the hashes of block `index` among those of a file; fewer than its sections, or none, if there are no more.
    pub fn of_block(self, index: u64, hashes: &[SectionHash]) -> &[SectionHash] {
        let per_block = BLOCK_LEN as usize / self.len;
        let place = usize::try_from(index).ok();
        let place = place.and_then(|index| index.checked_mul(per_block));
        let from = place.and_then(|start| hashes.get(start..)).unwrap_or(&[]);
        &from[..from.len().min(per_block)]
    }

    /// Returns a bit for each section of a block whose hash is not the known one, the lowest for the first.
    pub fn differing(self, block: &[u8], known: &[SectionHash]) -> u64 {
        let sections = self.hashes(block).enumerate();
        let differs = |(at, hash): &(usize, SectionHash)| known.get(*at) != Some(hash);
        sections.filter(differs).map(|(at, _)| 1 << at).sum()
    }

    /// Removes all sections but these from a block.
    pub fn retain(self, block: &mut Vec<u8>, sections: u64) {
        let mut kept = 0;
        for at in self.offsets(block.len(), sections) {
            let end = block.len().min(at + self.len);
            block.copy_within(at..end, kept);
            kept += end - at;
        }
        block.truncate(kept);
    }

    /// Writes these sections into a block. Returns false if `bytes` has another length than they.
    #[must_use]
    pub fn insert(self, block: &mut [u8], sections: u64, mut bytes: &[u8]) -> bool {
        for at in self.offsets(block.len(), sections) {
            let end = block.len().min(at + self.len);
            let Some((section, rest)) = bytes.split_at_checked(end - at) else {
                return false;
            };
            block[at..end].copy_from_slice(section);
            bytes = rest;
        }
        bytes.is_empty()
    }

    /// Offsets of these sections in a block, without those beyond its end.
    fn offsets(self, block_len: usize, sections: u64) -> impl Iterator<Item = usize> {
        let starts = (0..block_len).step_by(self.len).enumerate();
        starts
            .filter(move |(at, _)| sections >> at & 1 == 1)
            .map(|(_, start)| start)
    }
}

fn hash(section: &[u8]) -> SectionHash {
    let mut first = SectionHash::default();
    first.copy_from_slice(&blake3::hash(section).as_bytes()[..size_of::<SectionHash>()]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    #[test]
    fn are_short_in_short_files_and_never_too_many() {
        let len = |file_len| Sections::of(file_len).len as u64;
        assert_eq!(len(0), LEN_MIN);
        assert_eq!(len(4 << 30), LEN_MIN);
        assert_eq!(len((4 << 30) + 1), 2 * LEN_MIN);
        assert_eq!(len(256 << 30), BLOCK_LEN);
        assert_eq!(len(u64::MAX), BLOCK_LEN);
    }

    #[test]
    fn finds_the_hashes_of_a_block() {
        let sections = Sections::of(5);
        let hashes: Vec<_> = (0..130_u8).map(|at| [at; 8]).collect();
        assert_eq!(sections.of_block(1, &hashes), &hashes[64..128]);
        assert_eq!(sections.of_block(2, &hashes), &hashes[128..]);
        for beyond in [3, u64::MAX / 64, u64::MAX] {
            assert!(sections.of_block(beyond, &hashes).is_empty());
        }
    }

    proptest! {
        /// Whatever differs, the other version with the differing sections is the block.
        #[test]
        fn differing_sections_turn_one_version_into_the_other(
            mut block in vec(any::<u8>(), 1..400),
            len in 1usize..100,
            other_len in 0usize..400,
            changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let sections = Sections { len: len.max(block.len().div_ceil(64)) };
            let mut other = block.clone();
            for (at, byte) in changes {
                other[at.index(block.len())] = byte;
            }
            other.truncate(other_len);
            let known: Vec<_> = sections.hashes(&other).collect();
            let differing = sections.differing(&block, &known);
            let whole = block.clone();
            sections.retain(&mut block, differing);
            other.resize(whole.len(), 0);
            prop_assert!(sections.insert(&mut other, differing, &block));
            prop_assert_eq!(&other, &whole);
            block.push(0);
            prop_assert!(!sections.insert(&mut other, differing, &block), "too long");
            block.truncate(block.len().saturating_sub(2));
            let is_empty = differing == 0;
            prop_assert_eq!(sections.insert(&mut other, differing, &block), is_empty, "too short");
        }
    }
}
