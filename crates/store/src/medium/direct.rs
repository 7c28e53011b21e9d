// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks on their way to the disk, past the page cache.
//!
//! What goes through the page cache is copied into it, written out when the kernel thinks fit, and every sync waits for it;
//! threads that write one file take turns. A block is large and aligned: the disk can fetch it from where it is, which costs a
//! fraction of the processor's time and keeps the cache for others (docs/decisions/blocks-past-the-page-cache.md). Where a file system refuses
//! that, the page cache does.

use crate::medium::Medium;
use std::{
    io,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// What address, offset and length have to be a multiple of, in bytes: enough for every disk (open(2), O_DIRECT).
const ALIGNMENT: usize = 4096;

/// Memory from which a disk can fetch.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// A file, and a second way into it that leaves the page cache out.
pub(crate) struct Direct<F> {
    way: Option<F>,
    refused: AtomicBool,
}

impl<F: Medium> Direct<F> {
    pub(crate) fn into(file: &F) -> Self {
        Self {
            way: file.directly(),
            refused: AtomicBool::new(false),
        }
    }

    /// Writes a block to `file`, which this is a way into.
    pub(crate) fn write(&self, file: &F, bytes: &[u8], offset: u64) -> io::Result<()> {
        let way = self.way.as_ref().filter(|_| is_aligned(bytes, offset));
        let Some(way) = way.filter(|_| !self.refused.load(Relaxed)) else {
            return file.write_at(bytes, offset);
        };
        match way.write_at(bytes, offset) {
            // It could be opened like this, but not written.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.refused.store(true, Relaxed);
                file.write_at(bytes, offset)
            }
            written => written,
        }
    }
}

fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let address = bytes.as_ptr().align_offset(ALIGNMENT) == 0;
    address && bytes.len().is_multiple_of(ALIGNMENT) && offset.is_multiple_of(ALIGNMENT as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    fn content(len: usize) -> Buffer {
        let mut buffer = Buffer::new(len);
        let bytes = buffer.iter_mut().zip((0_u8..251).cycle());
        bytes.for_each(|(to, from)| *to = from);
        buffer
    }

    #[test]
    fn what_is_aligned_and_what_is_not_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create_new(&path).unwrap();
        let direct = Direct::into(&file);
        let bytes = content(3 * ALIGNMENT);
        let rest = &bytes[..100];
        direct.write(&file, &bytes, 0).unwrap();
        direct.write(&file, rest, bytes.len() as u64).unwrap();
        direct
            .write(&file, &bytes[1..], 2 * ALIGNMENT as u64 + 7)
            .unwrap();
        let found = fs::read(&path).unwrap();
        assert_eq!(found[..2 * ALIGNMENT], bytes[..2 * ALIGNMENT]);
        assert_eq!(found[2 * ALIGNMENT + 7..], bytes[1..]);
    }

    #[test]
    fn only_what_is_refused_for_its_form_goes_the_other_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let direct = Direct {
            // For reading only: no matter of alignment, so the error stays.
            way: Some(File::open(&path).unwrap()),
            refused: AtomicBool::new(false),
        };
        assert!(direct.write(&file, &content(ALIGNMENT), 0).is_err());
        assert!(!direct.refused.load(Relaxed));
        direct.refused.store(true, Relaxed);
        direct.write(&file, &content(ALIGNMENT), 0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), ALIGNMENT as u64);
    }

    #[test]
    fn buffers_are_where_a_disk_can_fetch_from() {
        for len in [0, 1, ALIGNMENT, 5 * ALIGNMENT + 3] {
            let buffer = Buffer::new(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }
}
