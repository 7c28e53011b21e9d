// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the real file system, and direct writes of blocks past the page cache.
//!
//! Bytes in the page cache are copied, written when the kernel decides, and waited for by every sync. Threads that write
//! one file wait for each other. A block is large and aligned, so the disk can read it from the caller's memory. Direct
//! writes cost a fraction of the processor time and keep the cache free (docs/decisions/blocks-past-the-page-cache.md). If
//! a file system refuses direct writes, the page cache is used.

use super::FileOps;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, SeekFrom},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::File,
    io::{self, Write},
    num::NonZeroU64,
    ops::{Deref, DerefMut, Range},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

impl FileOps for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match FileExt::read_at(self, rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn is_hole(&self, range: &Range<u64>) -> bool {
        match rustix::fs::seek(self, SeekFrom::Data(range.start)) {
            Ok(data) => data >= range.end,
            // ENXIO: no data follows. The file may also end before the range.
            Err(errno) => {
                errno == Errno::NXIO && self.metadata().is_ok_and(|file| file.len() >= range.end)
            }
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        rustix::fs::fcntl_setfl(self, OFlags::APPEND)?;
        let mut file = self;
        file.write_all(bytes)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match NonZeroU64::new(len) {
            None => Ok(()),
            Some(len) => {
                is_supported(fallocate(self, FallocateFlags::empty(), 0..len.get())).map(drop)
            }
        }
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if is_supported(fallocate(self, punch, range.clone()))? {
            return Ok(());
        }
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write_all_at(&zeros, range.start)
    }

    /// Opens the descriptor's entry in /proc: the same file, whatever its name is now.
    fn open_direct(&self) -> Option<Self> {
        let path = format!("/proc/self/fd/{}", self.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::open(path.as_str(), flags, Mode::empty()));
        opened.ok().map(Self::from)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self)?)
    }

    fn file_system_id(&self) -> io::Result<u64> {
        Ok(self.metadata()?.dev())
    }
}

fn fallocate(file: &File, flags: FallocateFlags, range: Range<u64>) -> Result<(), Errno> {
    let len = range.end - range.start;
    retry_on_intr(|| rustix::fs::fallocate(file, flags, range.start, len))
}

/// Whether the file system supports the operation. Some FUSE file systems call it not permitted.
fn is_supported(done: Result<(), Errno>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

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

    #[test]
    fn zero_replaces_bytes() {
        let file = tempfile::tempfile().unwrap();
        file.append(&[1; 10_000]).unwrap();
        FileOps::zero(&file, 100..9000).unwrap();
        let mut bytes = [2; 10_000];
        assert_eq!(FileOps::read_at(&file, &mut bytes, 0).unwrap(), 10_000);
        let ones = bytes.iter().filter(|byte| **byte == 1).count();
        assert_eq!((ones, bytes[99], bytes[100]), (1100, 1, 0));
    }
}

#[cfg(test)]
mod direct_tests {
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
