// SPDX-License-Identifier: MIT OR Apache-2.0
//! The little that a copy needs of files and directories, so that tests can put a disk that loses
//! power under it, and the real ones: [`std::fs::File`] and [`Dir`].

mod dir;
pub mod direct;
mod file;
pub(crate) mod holes;
#[cfg(test)]
pub(crate) mod simulated;

pub use dir::Dir;
pub(crate) use dir::ours;

use rustix::io::Errno;
use std::{io, ops::Range};

/// A file's bytes.
pub trait Medium: Send + Sync {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills the buffer as far as the file goes; the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all the bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all the bytes at the end, wherever that is by now.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file, or lengthens it by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space for the first `len` bytes where the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes zeros of a range within the file, without space on the disk if the file system can.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;
    /// A second way into the file that writes past the page cache, where there is one. What comes by
    /// it has to be aligned ([`direct`]), and is durable when the file is synced, as ever.
    fn directly(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
    /// Makes bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes bytes, length and metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Makes the bytes and metadata of every file of the file system durable.
    fn sync_file_system(&self) -> io::Result<()>;
    /// Which file system it is on.
    fn file_system(&self) -> io::Result<u64>;
}

/// A directory's names. A name is a single component.
pub trait Directory: Clone {
    /// What its names are of.
    type File: Medium;
    /// Opens a file; `None` if there is none and none was to be made. Whatever stands at the name
    /// instead of a file of ours is an error, and untouched.
    fn open(&self, name: &[u8], how: How) -> Result<Option<Self::File>, OpenError>;
    /// Removes the file at a name of ours, whoever owns it and may write it, unless somebody has the lock. Nothing
    /// there is as good.
    fn displace(&self, name: &[u8]) -> Result<(), OpenError>;
    /// Whether the name is still that of this open file.
    fn names(&self, name: &[u8], file: &Self::File) -> io::Result<bool>;
    /// Gives a file another name, whose former file loses it.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;
    /// Removes a name. One that is not there is as good.
    fn remove(&self, name: &[u8]) -> io::Result<()>;
    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
    /// Tells one directory from another.
    fn id(&self) -> (u64, u64);
}

/// What to open a file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Reading only, without a lock, whoever owns it.
    Read,
    /// Writing, if it is there, together with others who share it.
    Share,
    /// Writing, if it is there, locked against everybody else.
    Hold,
    /// Likewise, and made if it is not there.
    Make,
    /// Likewise, waiting while somebody else has the lock. It is for all who may write in the directory: it is made with the
    /// group and the mode of it, without the right to execute, and whoever of them made it is as good. In a directory as /tmp it
    /// is ours alone.
    MakeAndWait,
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has the lock.
    #[error("somebody else is writing it")]
    Busy,
    /// Something else stands in the file's place. It was not touched.
    #[error("{0}; it was left alone, remove it")]
    Refused(Refusal),
    /// The system's answer.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What stands in a file's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody may have put it there to have something else written.
    #[error("a symbolic link is in its place")]
    Symlink,
    /// A directory, a fifo, a socket or a device.
    #[error("what is in its place is no regular file")]
    NotRegular,
    /// Its bytes have other names, outside perhaps.
    #[error("what is in its place has hard links elsewhere")]
    HardLinks,
    /// Its owner could change it.
    #[error("what is in its place belongs to another user")]
    Owner,
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}
