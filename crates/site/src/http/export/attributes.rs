// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes of users (`user.*`, xattr(7)), which a file that takes another's place, or is a copy of it, has, too.

use super::meta::errno;
use dav_server::fs::{FsError, FsResult};
use rustix::{
    buffer::spare_capacity,
    fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr},
    io::Errno,
};
use std::os::fd::AsFd;

const OF_USERS: &[u8] = b"user.";

/// Bytes of all names, and of a value: Linux's XATTR_LIST_MAX and XATTR_SIZE_MAX.
const NAMES_LEN_MAX: usize = 64 << 10;
const VALUE_LEN_MAX: usize = 64 << 10;

/// A value; nothing where the attribute is not there or the file system has none.
pub(crate) fn read(file: impl AsFd, name: &[u8]) -> FsResult<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(VALUE_LEN_MAX);
    match fgetxattr(file, name, spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(errno(error)),
    }
}

/// Sets a value, or removes the attribute.
pub(crate) fn write(file: impl AsFd, name: &[u8], value: Option<&[u8]>) -> FsResult<()> {
    let written = match value {
        Some(value) => fsetxattr(file, name, value, XattrFlags::empty()),
        None => match fremovexattr(file, name) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        },
    };
    written.map_err(|error| match error {
        // More than a file's attributes may have there.
        Errno::RANGE | Errno::TOOBIG => FsError::InsufficientStorage,
        // The file system has none.
        Errno::OPNOTSUPP => FsError::Forbidden,
        error => errno(error),
    })
}

/// Gives `to` all that `from` has. A file system without them keeps none.
pub(crate) fn copy(from: impl AsFd, to: impl AsFd) -> FsResult<()> {
    let mut names = Vec::with_capacity(NAMES_LEN_MAX);
    match flistxattr(&from, spare_capacity(&mut names)) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        listed => drop(listed.map_err(errno)?),
    }
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| name.starts_with(OF_USERS))
    {
        let Some(value) = read(&from, name)? else {
            continue;
        };
        match fsetxattr(&to, name, &value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            set => set.map_err(errno)?,
        }
    }
    Ok(())
}
