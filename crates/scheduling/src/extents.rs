// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a copy is divided among movers that share it: into extents of some GiB, each work for one of them.
//!
//! An extent is so large that a database hears of it a few times a minute whatever the rate, and so small that what a
//! mover had when it died is done again in seconds to minutes: at 10 Gbit/s 1 GiB lasts 0.9 s and 64 GiB 55 s.

use std::ops::Range;

/// The smallest extent that is worth the bookkeeping: 1 GiB.
pub const EXTENT_MIN: u64 = 1 << 30;

/// The largest, 64 GiB: a mover that dies leaves no more than so much to be looked at.
pub const EXTENT_MAX: u64 = 64 << 30;

/// Extents that a file is cut into, as long as they are within the bounds: enough for some movers to end together.
const EXTENTS_A_FILE: u64 = 64;

/// Files in one extent, and bytes in their names: a mebibyte in the database.
const FILES_MAX: usize = 4096;
const NAMES_MAX: usize = 1 << 20;

/// The length of a file's extents, in bytes: a power of two from [`EXTENT_MIN`] to [`EXTENT_MAX`].
#[must_use]
pub fn extent_len(file_len: u64) -> u64 {
    let wanted = file_len.div_ceil(EXTENTS_A_FILE);
    wanted.clamp(EXTENT_MIN, EXTENT_MAX).next_power_of_two()
}

/// The blocks of each extent of a file, of blocks of `block_len` bytes. An extent has a block at least.
pub fn cut(
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

/// Files gathered for one extent.
#[derive(Debug, Default, Clone, Copy)]
pub struct Gathered {
    files: usize,
    names: usize,
    bytes: u64,
}

impl Gathered {
    /// One more, of so many bytes and with a name of so many.
    pub fn add(&mut self, bytes: u64, name_len: usize) {
        self.files += 1;
        self.names += name_len;
        self.bytes += bytes;
    }

    /// Whether they are an extent's worth.
    #[must_use]
    pub fn is_enough(&self, extent_len: u64) -> bool {
        self.bytes >= extent_len || self.files >= FILES_MAX || self.names >= NAMES_MAX
    }

    /// Bytes in all of them.
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
    fn files_are_enough_by_bytes_number_or_names() {
        let with = |files: usize, bytes, name_len| {
            let mut gathered = Gathered::default();
            (0..files).for_each(|_| gathered.add(bytes, name_len));
            gathered.is_enough(1000)
        };
        assert!(!with(9, 100, 10) && with(10, 100, 10));
        assert!(!with(FILES_MAX - 1, 0, 1) && with(FILES_MAX, 0, 1));
        assert!(!with(255, 0, 4096) && with(256, 0, 4096));
    }

    proptest! {
        #[test]
        fn the_extents_of_a_file_are_all_of_it_once(len in 0u64..1 << 46, extent in 1u64..1 << 36) {
            let extent = extent.max(len / 1000);
            let mut next = 0;
            for blocks in cut(len, BLOCK, extent) {
                prop_assert!(blocks.start == next && blocks.end > next);
                prop_assert!((blocks.end - blocks.start) * BLOCK <= extent.max(BLOCK));
                next = blocks.end;
            }
            prop_assert_eq!(next, len.div_ceil(BLOCK));
        }
    }
}
