// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes blocks to the disk past the page cache.
//!
//! Bytes in the page cache are copied, written when the kernel decides, and waited for by every
//! sync. Threads that write one file wait for each other. A block is large and aligned, so the disk
//! can read it from the caller's memory. Direct writes cost a fraction of the processor time and
//! keep the cache free (docs/decisions/blocks-past-the-page-cache.md). If a file system refuses
//! direct writes, the page cache is used.

use crate::vfs::FileOps;
use std::{
    io,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Address, offset and length of a direct write must be multiples of this many bytes. The value
/// suits every disk (open(2), O_DIRECT).
const ALIGNMENT: usize = 4096;

/// Memory aligned for direct writes.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Allocates `len` zero bytes.
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

/// Second descriptor of a file, which bypasses the page cache.
pub(crate) struct DirectFile<F> {
    direct: Option<F>,
    unsupported: AtomicBool,
}

impl<F: FileOps> DirectFile<F> {
    pub(crate) fn open(file: &F) -> Self {
        Self {
            direct: file.open_direct(),
            unsupported: AtomicBool::new(false),
        }
    }

    /// Writes a block to `file`, of which this is the second descriptor.
    pub(crate) fn write(&self, file: &F, bytes: &[u8], offset: u64) -> io::Result<()> {
        let direct = self.direct.as_ref().filter(|_| is_aligned(bytes, offset));
        let Some(direct) = direct.filter(|_| !self.unsupported.load(Relaxed)) else {
            return file.write_at(bytes, offset);
        };
        match direct.write_at(bytes, offset) {
            // The file system accepts O_DIRECT when opening, but not when writing.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.unsupported.store(true, Relaxed);
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
    fn writes_aligned_and_unaligned_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create_new(&path).unwrap();
        let direct = DirectFile::open(&file);
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
    fn falls_back_to_the_page_cache_only_for_invalid_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let direct = DirectFile {
            // Opened for reading only: alignment is not the reason, so the error is returned.
            direct: Some(File::open(&path).unwrap()),
            unsupported: AtomicBool::new(false),
        };
        assert!(direct.write(&file, &content(ALIGNMENT), 0).is_err());
        assert!(!direct.unsupported.load(Relaxed));
        direct.unsupported.store(true, Relaxed);
        direct.write(&file, &content(ALIGNMENT), 0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), ALIGNMENT as u64);
    }

    #[test]
    fn buffers_are_aligned() {
        for len in [0, 1, ALIGNMENT, 5 * ALIGNMENT + 3] {
            let buffer = Buffer::new(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }
}
