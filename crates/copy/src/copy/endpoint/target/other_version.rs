// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other version of a file that is being received: what it has in common with the new one need not be sent.

use crate::protocol::sections::{SECTIONS_MAX, SectionHash, Sections};
use longhaul_store::{blocks::Blocks, vfs::FileOps as _};
use std::{fs::File, io};

/// Open file under the final name, which the copy will replace.
#[derive(Debug)]
pub(super) struct OtherVersion {
    file: File,
    /// Blocks of the new version.
    blocks: Blocks,
    sections: Sections,
}

impl OtherVersion {
    pub(super) fn new(file: File, blocks: Blocks) -> Self {
        Self {
            file,
            blocks,
            sections: Sections::of(blocks.file_len()),
        }
    }

    /// Reads the file, and returns the hashes of its first sections. Stops if `is_over`.
    pub(super) fn hashes(&self, is_over: impl Fn() -> bool) -> Vec<SectionHash> {
        let (mut block, mut hashes) = (Vec::new(), Vec::new());
        for index in 0..self.blocks.count() {
            let Ok(read) = self.read(index, &mut block) else {
                break;
            };
            hashes.extend(self.sections.hashes(&block[..read]));
            if read < block.len() || hashes.len() >= SECTIONS_MAX || is_over() {
                break;
            }
        }
        hashes.truncate(SECTIONS_MAX);
        hashes
    }

    /// Returns block `index` of the new version: these sections, and the others of this version.
    pub(super) fn patch(&self, index: u64, sections: u64, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut block = Vec::new();
        self.read(index, &mut block)?;
        if self.sections.insert(&mut block, sections, bytes) {
            Ok(block)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Reads a block as far as this version has it. The rest of it is zeros.
    fn read(&self, index: u64, block: &mut Vec<u8>) -> io::Result<usize> {
        let range = self.blocks.range(index).map_err(io::Error::other)?;
        block.clear();
        block.resize((range.end - range.start) as usize, 0);
        if self.file.is_hole(&range) {
            Ok(block.len())
        } else {
            self.file.read_at(block, range.start)
        }
    }
}
