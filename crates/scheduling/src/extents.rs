// SPDX-License-Identifier: MIT OR Apache-2.0
//! Division of a copy into extents of some GiB, among workers that share it. Each extent is the work of one worker.
//!
//! Large extents keep updates of the database rare. Small extents keep the work short that is repeated after a worker
//! dies: at 10 Gbit/s, 1 GiB takes 0.9 s and 64 GiB takes 55 s.

use std::ops::Range;

/// The smallest extent that is worth the bookkeeping: 1 GiB.
pub const EXTENT_MIN: u64 = 1 << 30;

/// The largest extent: 64 GiB. A worker that dies leaves at most this much to be checked.
pub const EXTENT_MAX: u64 = 64 << 30;

/// Largest number of extents in a file, unless they reach [`EXTENT_MAX`]. With so many extents, all workers end at
/// about the same time.
const EXTENTS_PER_FILE: u64 = 64;

/// Maximum number of files in one extent.
const FILES_MAX: usize = 4096;

/// Maximum bytes in the names of one extent's files, which the database stores: 1 MiB.
const NAME_BYTES_MAX: usize = 1 << 20;

/// Returns the length of a file's extents, in bytes: a power of two from [`EXTENT_MIN`] to [`EXTENT_MAX`].
#[must_use]
pub fn extent_len(file_len: u64) -> u64 {
    let len = file_len.div_ceil(EXTENTS_PER_FILE);
    len.clamp(EXTENT_MIN, EXTENT_MAX).next_power_of_two()
}

/// Divides a file into extents and returns the range of blocks of each. Lengths are in bytes. An extent has at least
/// one block.
pub fn split(
    file_len: u64,
    block_len: u64,
    extent_len: u64,
) -> impl Iterator<Item = Range<u64>> + use<> {
    let (blocks, step) = (
        file_len.div_ceil(block_len),
        (extent_len / block_len).max(1),
    );
    (0..blocks.div_ceil(step)).map(move |index| index * step..blocks.min((index + 1) * step))
}

/// Totals of the files collected for one extent.
#[derive(Debug, Default, Clone, Copy)]
pub struct ExtentFiles {
    files: usize,
    name_bytes: usize,
    bytes: u64,
}

impl ExtentFiles {
    /// Adds a file of `bytes`, with a name of `name_len` bytes.
    pub fn add(&mut self, bytes: u64, name_len: usize) {
        self.files += 1;
        self.name_bytes += name_len;
        self.bytes += bytes;
    }

    /// Whether the files fill an extent of `extent_len` bytes, or reach the maximum number of files or bytes of names.
    #[must_use]
    pub fn is_full(&self, extent_len: u64) -> bool {
        self.bytes >= extent_len || self.files >= FILES_MAX || self.name_bytes >= NAME_BYTES_MAX
    }

    /// Bytes in all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 4 << 20;

    #[test]
    fn extents_grow_with_the_file_within_bounds() {
        let gib = |gib: u64| extent_len(gib << 30) >> 30;
        assert_eq!(
            [1, 64, 65, 128, 1000, 4096, 65_536].map(gib),
            [1, 1, 2, 2, 16, 64, 64]
        );
        assert_eq!(extent_len(0), EXTENT_MIN);
    }

    #[test]
    fn files_fill_an_extent_by_bytes_number_or_names() {
        let is_full = |files: usize, bytes, name_len| {
            let mut extent_files = ExtentFiles::default();
            (0..files).for_each(|_| extent_files.add(bytes, name_len));
            extent_files.is_full(1000)
        };
        assert!(!is_full(9, 100, 10) && is_full(10, 100, 10));
        assert!(!is_full(FILES_MAX - 1, 0, 1) && is_full(FILES_MAX, 0, 1));
        assert!(!is_full(255, 0, 4096) && is_full(256, 0, 4096));
    }

    proptest! {
        #[test]
        fn extents_cover_a_file_once(len in 0u64..1 << 46, extent in 1u64..1 << 36) {
            let extent = extent.max(len / 1000);
            let mut next = 0;
            for blocks in split(len, BLOCK, extent) {
                prop_assert!(blocks.start == next && blocks.end > next);
                prop_assert!((blocks.end - blocks.start) * BLOCK <= extent.max(BLOCK));
                next = blocks.end;
            }
            prop_assert_eq!(next, len.div_ceil(BLOCK));
        }
    }
}
