// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of entries in a tree. A descriptor stays with the entry when its name changes.

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

/// Flags for opening untrusted files: no symbolic link is followed, opening does not block, child
/// processes do not inherit the descriptor, and no terminal becomes the controlling one.
pub(crate) const SAFE_FLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// Descriptor of an entry in a tree, with its state. Stays with the entry when the name changes.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// Reason why the entry cannot be read; `None` if it can. With a reason, the descriptor only
    /// names the entry (O_PATH). Entries other than files and directories always have one, because
    /// opening a device may have effects.
    pub(crate) unreadable: Option<Errno>,
}

impl Handle {
    /// File type of the entry.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(crate) fn is_same_entry(&self, other: &Self) -> bool {
        let identity = |of: &Self| (of.stat.st_dev, of.stat.st_ino);
        identity(self) == identity(other)
    }
}

/// Opens the entry `name` in `dir`.
pub(crate) fn open_handle(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (fd, unreadable) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => match open_for_reading(dir, name) {
            Ok(fd) => (fd, None),
            // The entry may have become a link or a device since: open it by name only.
            Err(errno @ (Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::PERM)) => {
                (open_path_only(dir, name)?, Some(errno))
            }
            Err(errno) => return Err(errno),
        },
        _ => (open_path_only(dir, name)?, Some(Errno::INVAL)),
    };
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable,
    })
}

pub(crate) fn open_path_handle(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let fd = open_path_only(dir, name)?;
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable: Some(Errno::INVAL),
    })
}

fn open_for_reading(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    without_atime(|atime_flag| {
        fs::openat(
            dir,
            name,
            OFlags::RDONLY | SAFE_FLAGS | atime_flag,
            Mode::empty(),
        )
    })
}

fn open_path_only(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Opens without changing the access time, where the system allows it: only the owner may ask for
/// that.
pub(crate) fn without_atime<T>(
    mut open: impl FnMut(OFlags) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        result => result,
    }
}
