// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that read or set a file's metadata.

use super::{
    fields::{MetadataField, SkippedField},
    xattr::{XATTR_LIST_MAX, XATTR_VALUE_MAX, XATTRS_MAX, Xattr, is_copied},
};
use crate::metadata::handle::Handle;
use rustix::{
    buffer::spare_capacity,
    fd::{AsFd, AsRawFd, BorrowedFd},
    fs::{self, AtFlags, Gid, Mode, Timestamps, Uid, XattrFlags},
    io::Errno,
};

/// File whose metadata is read or set.
pub(super) enum Target<'a> {
    /// Open descriptor.
    Open(BorrowedFd<'a>),
    /// Descriptor that only names the file (O_PATH), with its path in /proc. The path leads to the
    /// entry itself, even if it is a symbolic link.
    ByPath(BorrowedFd<'a>, String),
}

impl<'a> Target<'a> {
    pub(super) fn of(handle: &'a Handle) -> Self {
        let fd = handle.fd.as_fd();
        match handle.unreadable {
            None => Self::Open(fd),
            Some(_) => Self::ByPath(fd, format!("/proc/self/fd/{}", fd.as_raw_fd())),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'a> {
        match self {
            Self::Open(fd) | Self::ByPath(fd, _) => *fd,
        }
    }

    fn names(&self) -> Result<Vec<u8>, Errno> {
        let mut list = Vec::with_capacity(XATTR_LIST_MAX);
        match self {
            Self::Open(fd) => fs::flistxattr(fd, spare_capacity(&mut list))?,
            Self::ByPath(_, path) => fs::listxattr(path, spare_capacity(&mut list))?,
        };
        Ok(list)
    }

    fn value(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = Vec::with_capacity(XATTR_VALUE_MAX);
        match self {
            Self::Open(fd) => fs::fgetxattr(fd, name, spare_capacity(&mut value))?,
            Self::ByPath(_, path) => fs::getxattr(path, name, spare_capacity(&mut value))?,
        };
        Ok(value)
    }

    pub(super) fn set(&self, xattr: &Xattr) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => fs::fsetxattr(fd, &*xattr.name, &xattr.value, flags),
            Self::ByPath(_, path) => fs::setxattr(path, &*xattr.name, &xattr.value, flags),
        }
    }

    pub(super) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fs::fremovexattr(fd, name),
            Self::ByPath(_, path) => fs::removexattr(path, name),
        }
    }

    pub(super) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        fs::chownat(self.fd(), c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    pub(super) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(fd) => fs::fchmod(fd, mode),
            Self::ByPath(_, path) => fs::chmod(path, mode),
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fs::futimens(fd, times),
            Self::ByPath(_, path) => fs::utimensat(fs::CWD, path, times, AtFlags::empty()),
        }
    }
}

pub(super) fn read_xattrs(target: &Target<'_>) -> (Vec<Xattr>, Vec<SkippedField>) {
    let list = match target.names() {
        Ok(list) => list,
        Err(Errno::OPNOTSUPP) => Vec::new(),
        Err(errno) => {
            return (
                Vec::new(),
                vec![SkippedField {
                    field: MetadataField::Xattrs,
                    errno,
                }],
            );
        }
    };
    let (mut xattrs, mut skipped) = (Vec::new(), Vec::new());
    let mut budget = XATTRS_MAX;
    for name in list.split(|&byte| byte == 0).filter(|name| is_copied(name)) {
        match target
            .value(name)
            .and_then(|value| charge_budget(&mut budget, name, value))
        {
            Ok(xattr) => xattrs.push(xattr),
            // Removed since it was listed: treat it as never listed.
            Err(Errno::NODATA) => {}
            Err(errno) => skipped.push(SkippedField {
                field: MetadataField::Xattr(name.into()),
                errno,
            }),
        }
    }
    xattrs.sort_by(|a: &Xattr, b| a.name.cmp(&b.name));
    (xattrs, skipped)
}

pub(super) fn charge_budget(
    budget: &mut usize,
    name: &[u8],
    value: Vec<u8>,
) -> Result<Xattr, Errno> {
    *budget = budget
        .checked_sub(name.len() + value.len())
        .ok_or(Errno::TOOBIG)?;
    Ok(Xattr {
        name: name.into(),
        value: value.into(),
    })
}
