// SPDX-License-Identifier: MIT OR Apache-2.0
//! File operations that a copy needs. [`std::fs::File`] and [`Dir`] are the real ones; tests use a
//! simulated disk that loses power.

mod dir;
pub mod file;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod sparse;

pub(crate) use dir::check_owned;
pub use dir::{Dir, sync_file_system};

use rustix::io::Errno;
use std::{io, ops::Range};

/// Operations on the bytes of an open file.
pub trait FileOps: Send + Sync {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills the buffer, or reads up to the end of the file. Returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Whether the file is known to have no data on disk in a range. It then reads as zeros there.
    fn is_hole(&self, range: &Range<u64>) -> bool {
        let _ = range;
        false
    }
    /// Writes all the bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all the bytes at the current end of the file.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file, or extends it by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space for the first `len` bytes if the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Sets a range within the file to zeros, without space on the disk if the file system can.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;
    /// Opens a second descriptor of the file that bypasses the page cache, if possible. Writes
    /// through it must be aligned ([`mod@file`]), and become durable when the file is synced.
    fn open_direct(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
    /// Makes the bytes and the length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes the bytes, the length and the metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Makes the bytes and the metadata of every file in the file system durable.
    fn sync_file_system(&self) -> io::Result<()>;
    /// Device number of the file system.
    fn file_system_id(&self) -> io::Result<u64>;
}

/// Operations on the names in a directory. A name is a single component.
pub trait Directory: Clone {
    /// Type of the open files.
    type File: FileOps;
    /// Opens a file; `None` if it is missing and is not to be created. A name that holds anything
    /// but an internal file of this user is an error, and is left untouched.
    fn open(&self, name: &[u8], open_mode: OpenMode) -> Result<Option<Self::File>, OpenError>;
    /// Removes an internal file, whoever owns it, unless it is locked. A missing file is not an
    /// error.
    fn remove_unless_locked(&self, name: &[u8]) -> Result<(), OpenError>;
    /// Whether the name still refers to this open file.
    fn refers_to(&self, name: &[u8], file: &Self::File) -> io::Result<bool>;
    /// Renames a file, replacing the file that has the new name.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;
    /// Removes a name. A missing name is not an error.
    fn remove(&self, name: &[u8]) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
    /// Identity of the directory: device and inode number.
    fn id(&self) -> (u64, u64);
}

/// Access and lock with which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading, without a lock, whoever owns the file.
    Read,
    /// For writing, if the file exists, under a shared lock.
    Shared,
    /// For writing, if the file exists, under an exclusive lock.
    Exclusive,
    /// For writing, under an exclusive lock; created if missing.
    CreateExclusive,
    /// For writing, under an exclusive lock; created if missing. Waits for the lock. The file is
    /// for all users who may write in the directory. A new file gets the directory's group and
    /// mode, without execute permission. A file that any of these users created is accepted. In a
    /// directory like /tmp, the file is for this user only.
    CreateAndWait,
}

/// Reason why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The lock is held by another process.
    #[error("another process is writing it")]
    Busy,
    /// The name holds a file that is not trusted. The file was left untouched.
    #[error("{0}; it was left untouched, remove it")]
    Untrusted(UntrustedFile),
    /// Error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reason why a file at an internal name is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedFile {
    /// A symbolic link: another user may have placed it to redirect writes.
    #[error("a symbolic link is in its place")]
    Symlink,
    /// A directory, a fifo, a socket or a device.
    #[error("the entry in its place is not a regular file")]
    NotRegular,
    /// The file has other names, maybe outside the tree.
    #[error("the entry in its place has hard links elsewhere")]
    HardLinks,
    /// The file belongs to another user, who could change it.
    #[error("the entry in its place belongs to another user")]
    Owner,
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}
