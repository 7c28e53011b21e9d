// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access control lists (acl(5)) in Linux's format, `posix_acl_xattr.h`: a version (4 bytes), then
//! entries of tag (2), permissions (2) and number (4), little-endian.

use rustix::{
    fd::AsFd,
    fs::{XattrFlags, fgetxattr, fsetxattr},
};

/// Attribute that holds the access control list of a file.
pub(crate) const ACCESS: &str = "system.posix_acl_access";

/// Longest attribute value, in bytes.
const LEN_MAX: usize = 1 << 16;

const USER_OBJ: u16 = 1;
const GROUP_OBJ: u16 = 4;
const OTHER: u16 = 32;

/// Read and write permission.
const READ_AND_WRITE: u16 = 6;

/// Copies a directory's access control list to an internal file in it. Users whom the list lets
/// read and write in the directory may then do so with the file. Does nothing without a list.
/// `in_group`: the file has the directory's group. Permissions that the file system does not allow
/// stay as they are.
pub(crate) fn copy_to_file(dir: impl AsFd, file: impl AsFd, in_group: bool) {
    let mut list = vec![0; LEN_MAX];
    let Ok(len) = fgetxattr(dir, ACCESS, &mut list[..]) else {
        return;
    };
    list.truncate(len);
    if let Some(list) = file_acl(list, in_group) {
        let _ = fsetxattr(file, ACCESS, &list, XattrFlags::empty());
    }
}

/// Access control list for a file. The owner may always read and write. A group other than the
/// directory's gets the permissions of all others.
fn file_acl(mut list: Vec<u8>, in_group: bool) -> Option<Vec<u8>> {
    let (entries, _) = list.get_mut(4..)?.as_chunks_mut::<8>();
    let mut everybody = 0;
    for entry in &*entries {
        if tag(entry) == OTHER {
            everybody = u16::from_le_bytes([entry[2], entry[3]]);
        }
    }
    for entry in entries {
        let has = u16::from_le_bytes([entry[2], entry[3]]);
        let has = match tag(entry) {
            USER_OBJ => READ_AND_WRITE,
            GROUP_OBJ if !in_group => everybody,
            _ => has,
        };
        entry[2..4].copy_from_slice(&(has & READ_AND_WRITE).to_le_bytes());
    }
    Some(list)
}

fn tag(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, may) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(may.to_le_bytes());
            list.extend(1000_u32.to_le_bytes());
        }
        list
    }

    #[test]
    fn file_acl_follows_directory_acl() {
        const USER: u16 = 2;
        const MASK: u16 = 16;
        let dir = list(&[
            (USER_OBJ, 5),
            (USER, 7),
            (GROUP_OBJ, 7),
            (MASK, 7),
            (OTHER, 5),
        ]);
        for (in_group, group) in [(true, 6), (false, 4)] {
            let wanted = [
                (USER_OBJ, 6),
                (USER, 6),
                (GROUP_OBJ, group),
                (MASK, 6),
                (OTHER, 4),
            ];
            assert_eq!(file_acl(dir.clone(), in_group), Some(list(&wanted)));
        }
        assert_eq!(file_acl(vec![1], true), None);
    }
}
