// SPDX-License-Identifier: MIT OR Apache-2.0
//! File of the real file system.

use super::FileOps;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, SeekFrom},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::File,
    io::{self, Write},
    num::NonZeroU64,
    ops::Range,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
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
