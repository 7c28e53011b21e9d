// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes that a file takes from the file that it replaces or is a copy of: mode, POSIX access control lists
//! (acl(5)) and user extended attributes (`user.*`, xattr(7)).

use crate::http::response::{Outcome, Rejection};
use longhaul_store::metadata::{Metadata, MetadataField, SkippedField};
use rustix::{
    buffer::spare_capacity,
    fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr},
    io::Errno,
};
use std::os::fd::AsFd;

const USER_PREFIX: &[u8] = b"user.";
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// Longest value of an attribute, in bytes: Linux's XATTR_SIZE_MAX.
const VALUE_LEN_MAX: usize = 64 << 10;

/// Returns the value of an attribute. `None` if it is not set or the file system has no attributes.
pub(crate) fn read(file: impl AsFd, name: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(VALUE_LEN_MAX);
    match fgetxattr(file, name, spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets a value, or removes the attribute.
pub(crate) fn write(file: impl AsFd, name: &[u8], value: Option<&[u8]>) -> Outcome<()> {
    let written = match value {
        Some(value) => fsetxattr(file, name, value, XattrFlags::empty()),
        None => match fremovexattr(file, name) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        },
    };
    written.map_err(|error| match error {
        // The attributes would exceed what the file system can store.
        Errno::RANGE | Errno::TOOBIG => Rejection(507, "there is no space for attributes"),
        Errno::OPNOTSUPP => Rejection(403, "the file system has no attributes"),
        error => error.into(),
    })
}

/// Copies the mode, the access control lists and the user attributes of a file to `to`. Set-id bits are dropped and
/// the bits of `more` are set. A file system without attributes keeps only the mode, which then contains the rights
/// of the group from the list.
///
/// # Errors
/// Some of it can't be read. Dropping it silently would lose data, and a file without its list would be open to other
/// users than before.
pub(crate) fn copy(
    (original, unread): (Metadata, Vec<SkippedField>),
    to: impl AsFd,
    more: u32,
) -> Outcome<()> {
    if let Some(lost) = unread.iter().find(|left| is_copied_part(&left.field)) {
        return Err(lost.errno.into());
    }
    let (mut wanted, _) = Metadata::of_file(&to)?;
    wanted.mode = original.mode & 0o777 | more;
    wanted.xattrs.retain(|xattr| !is_copied(&xattr.name));
    let copied = original.xattrs.into_iter();
    let copied = copied.filter(|xattr| is_copied(&xattr.name));
    wanted.xattrs.extend(copied);
    let applied = wanted.apply_to_file(&to)?;
    let mut missing = applied.skipped.iter();
    let missing = missing.find(|left| {
        let is_attribute = matches!(left.field, MetadataField::Xattr(_));
        !(is_attribute && left.errno == Errno::OPNOTSUPP) && left.field != MetadataField::Times
    });
    missing.map_or(Ok(()), |left| Err(left.errno.into()))
}

fn is_copied(name: &[u8]) -> bool {
    name.starts_with(USER_PREFIX) || name.starts_with(ACL_PREFIX)
}

fn is_copied_part(what: &MetadataField) -> bool {
    match what {
        MetadataField::Xattr(name) => is_copied(name),
        what => *what == MetadataField::Xattrs,
    }
}
