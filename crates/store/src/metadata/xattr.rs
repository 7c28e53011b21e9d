// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: which are copied, and the changes that lead to the wanted ones.

use serde::{Deserialize, Serialize};

/// Maximum bytes in an attribute's value: Linux's XATTR_SIZE_MAX.
pub const XATTR_VALUE_MAX: usize = 64 << 10;

/// Maximum bytes in all attributes of a file, names and values together. Attributes beyond it are
/// not copied.
pub const XATTRS_MAX: usize = 256 << 10;

/// Maximum bytes in all names: Linux's XATTR_LIST_MAX.
pub(super) const XATTR_LIST_MAX: usize = 64 << 10;

pub(super) const ACL_ACCESS: &[u8] = crate::metadata::acl::ACCESS.as_bytes();
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
pub(super) const CAPABILITY: &[u8] = b"security.capability";

pub(super) const PRIVILEGED: &[u8] = b"trusted.";

/// Extended attribute that is copied: `user.*`, `trusted.*`, a POSIX access control list or
/// `security.capability`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Name with its namespace: `user.comment`.
    pub name: Box<[u8]>,
    /// Value as stored. Access control lists contain user and group numbers, which are copied like
    /// owners.
    pub value: Box<[u8]>,
}

impl Xattr {
    /// Stands for all access control lists that the target has. No list is without a value.
    pub(super) fn unchanged_acls() -> Self {
        Self {
            name: ACL_ACCESS.into(),
            value: [].into(),
        }
    }
}

/// Change to an attribute.
pub(super) enum Change<'a> {
    Set(&'a Xattr),
    Remove(&'a [u8]),
}

impl Change<'_> {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Set(xattr) => &xattr.name,
            Self::Remove(name) => name,
        }
    }
}

/// Changes that lead from `have` to `want`, access control lists last.
pub(super) fn changes<'a>(
    want: &'a [Xattr],
    have: &'a [Xattr],
) -> impl Iterator<Item = Change<'a>> {
    let known = |name: &[u8]| want.iter().any(|x| *x.name == *name);
    let removed = have
        .iter()
        .filter(move |x| is_copied(&x.name) && !known(&x.name));
    let new = |x: &&Xattr| is_copied(&x.name) && !have.contains(x);
    let (acls, others): (Vec<_>, Vec<_>) = want.iter().filter(new).partition(|x| is_acl(&x.name));
    let set = others.into_iter().chain(acls);
    removed
        .map(|x| Change::Remove(&x.name))
        .chain(set.map(Change::Set))
}

pub(super) fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// Whether an attribute is copied. Labels of security modules and lists of network file systems are
/// not: they have no meaning on another system, and would be reported for every file. Nor are
/// those that XFS makes of access control lists: to remove one is to remove the list.
pub(super) fn is_copied(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"trusted.") && !name.starts_with(b"trusted.SGI_")
        || is_acl(name)
        || name == CAPABILITY
}

/// Permissions of the owning group itself, from a list in Linux's format (`posix_acl_xattr.h`): a
/// version (4 bytes), then entries of tag (2), permissions (2) and number (4), little-endian.
pub(super) fn group_bits(acl: &[u8]) -> u32 {
    const GROUP_OBJ: [u8; 2] = [4, 0];
    let (entries, _) = acl.get(4..).unwrap_or_default().as_chunks::<8>();
    let group = entries.iter().find(|entry| entry[..2] == GROUP_OBJ);
    group.map_or(0, |entry| u32::from(entry[2]) & 0o7)
}
