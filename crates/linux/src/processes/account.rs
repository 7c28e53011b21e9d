// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's account (passwd(5), group(5)), and the change of a process to that user.

use std::{
    ffi::{CStr, CString, OsString, c_char},
    io,
    os::unix::ffi::OsStringExt,
    ptr,
};

/// A user's entry in the user database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User ID.
    pub uid: u32,
    /// ID of the primary group.
    pub gid: u32,
    /// IDs of all groups, the primary one included.
    pub groups: Vec<u32>,
    /// Login name.
    pub name: OsString,
    /// Home directory.
    pub home: OsString,
    /// Login shell.
    pub shell: OsString,
}

/// NGROUPS_MAX (include/uapi/linux/limits.h).
const GROUPS_MAX: usize = 65536;
/// Longest entry that is read, in bytes.
const ENTRY_BYTES_MAX: usize = 1 << 20;

impl Account {
    /// Looks up a login name. Returns `None` if there is no such user.
    pub fn of(name: &str) -> io::Result<Option<Self>> {
        let Ok(name) = CString::new(name) else {
            return Ok(None);
        };
        let mut bytes = 4096;
        loop {
            match look_up(&name, bytes) {
                Err(error)
                    if error.raw_os_error() == Some(libc::ERANGE) && bytes < ENTRY_BYTES_MAX =>
                {
                    bytes *= 4;
                }
                outcome => return outcome,
            }
        }
    }

    /// Changes this process to that user, for a child before it calls exec. Makes system calls only.
    /// Needs CAP_SETUID and CAP_SETGID.
    pub(crate) fn switch_to(&self) -> io::Result<()> {
        let check = |outcome| match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // Groups first: the user has no right to change them.
        // SAFETY: the list has the given length; the other calls take no pointers.
        unsafe {
            check(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            check(libc::setgid(self.gid))?;
            check(libc::setuid(self.uid))
        }
    }
}

fn look_up(name: &CStr, bytes: usize) -> io::Result<Option<Account>> {
    let mut text = vec![0; bytes];
    let mut found = ptr::null_mut();
    // SAFETY: integers and pointers, for which all zeroes are a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: all pointers are valid through the call, and the buffer has the given length.
    let error = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    match (error, found.is_null()) {
        (0, true) => Ok(None),
        (0, false) => Ok(Some(Account {
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups: groups_of(name, entry.pw_gid)?,
            // SAFETY: strings in `text`, which is still there.
            name: unsafe { copy_string(entry.pw_name) },
            // SAFETY: as above.
            home: unsafe { copy_string(entry.pw_dir) },
            // SAFETY: as above.
            shell: unsafe { copy_string(entry.pw_shell) },
        })),
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Copies a C string.
///
/// # Safety
/// `text` is a C string.
unsafe fn copy_string(text: *const c_char) -> OsString {
    // SAFETY: the caller's promise.
    OsString::from_vec(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
}

fn groups_of(name: &CStr, primary: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = GROUPS_MAX as i32;
    // SAFETY: the list has room for `count` groups.
    let found =
        unsafe { libc::getgrouplist(name.as_ptr(), primary, groups.as_mut_ptr(), &raw mut count) };
    if found < 0 {
        return Err(io::Error::other("a user in more than 65536 groups"));
    }
    groups.truncate(count as usize);
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_root_and_returns_none_for_unknown_users() {
        let root = Account::of("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(Account::of("no such user").unwrap(), None);
        assert_eq!(Account::of("nul\0inside").unwrap(), None);
    }
}
