// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names in a directory.

use rustix::{fd::BorrowedFd, fs::RawDir, io::Errno};
use std::mem::MaybeUninit;

/// Sorted names in a directory, packed in two vectors: a name takes its own bytes and 8 more. A
/// million names of 20 bytes take 28 MB.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    spans: Vec<(u32, u8)>,
}

impl Names {
    /// Reads all names. An error either ended the reading, or is [`Errno::NAMETOOLONG`] because a
    /// name was left out.
    pub(crate) fn read(dir: BorrowedFd<'_>) -> (Self, Option<Errno>) {
        Self::read_up_to(dir, usize::MAX)
    }

    /// Reads names until they are more than `count`. The error is [`Errno::FBIG`] then.
    pub(crate) fn read_up_to(dir: BorrowedFd<'_>, count: usize) -> (Self, Option<Errno>) {
        let mut names = Self::default();
        let error = names.fill(dir, count).err();
        names.sort();
        (names, error)
    }

    fn fill(&mut self, dir: BorrowedFd<'_>, count: usize) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut all_fit = Ok(());
        while let Some(entry) = entries.next() {
            let pushed = match entry {
                Ok(entry) => self.push(entry.file_name().to_bytes()),
                Err(Errno::INTR) => Ok(()),
                Err(error) => return Err(error),
            };
            match pushed {
                // Some file systems limit a name's characters, not its bytes. A name that is too
                // long is left out, and the others are read.
                Err(Errno::NAMETOOLONG) => all_fit = pushed,
                pushed => pushed?,
            }
            if self.spans.len() > count {
                return Err(Errno::FBIG);
            }
        }
        all_fit
    }

    /// Adds a name. Fails after 4 GiB of names.
    fn push(&mut self, name: &[u8]) -> Result<(), Errno> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        let start = u32::try_from(self.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
        let len = u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        self.bytes.extend_from_slice(name);
        self.spans.push((start, len));
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |&(start, len): &(u32, u8)| &bytes[start as usize..][..usize::from(len)];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }

    /// Name at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let &(start, len) = self.spans.get(index)?;
        Some(&self.bytes[start as usize..][..usize::from(len)])
    }

    /// Whether the directory has this name.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        let found = self.spans.binary_search_by(|&(start, len)| {
            let there = &self.bytes[start as usize..][..usize::from(len)];
            there.cmp(name)
        });
        found.is_ok()
    }

    /// Names, sorted by their bytes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.spans.len()).filter_map(|index| self.get(index))
    }
}
