// SPDX-License-Identifier: MIT OR Apache-2.0
//! Something in a tree, held so that it stays the same thing whatever becomes of its name.

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

/// No symbolic link is followed, nothing blocks, no child process inherits it, no terminal becomes
/// ours.
pub(crate) const SAFE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// Something in a tree, held so that it stays the same thing whatever becomes of its name.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// Why it cannot be read: nothing, or the descriptor does no more than name it. Of what is
    /// neither a file nor a directory, always the latter: opening a device may do something.
    pub(crate) unreadable: Option<Errno>,
}

impl Handle {
    /// The file or directory.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// Holds what is called `name` in `dir`.
pub(crate) fn handle(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (fd, unreadable) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => match open_quietly(dir, name) {
            Ok(fd) => (fd, None),
            // It may have become a link or a device since: then it is only named.
            Err(errno @ (Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::PERM)) => {
                (open_named(dir, name)?, Some(errno))
            }
            Err(errno) => return Err(errno),
        },
        _ => (open_named(dir, name)?, Some(Errno::INVAL)),
    };
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable,
    })
}

pub(crate) fn named(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let fd = open_named(dir, name)?;
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable: Some(Errno::INVAL),
    })
}

fn open_quietly(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    quietly(|quiet| fs::openat(dir, name, OFlags::RDONLY | SAFE | quiet, Mode::empty()))
}

fn open_named(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Reading leaves no trace in the time of access where the system lets us: only the owner may ask.
pub(crate) fn quietly<T>(mut open: impl FnMut(OFlags) -> Result<T, Errno>) -> Result<T, Errno> {
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        answer => answer,
    }
}
