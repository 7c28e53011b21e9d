// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata of files in the form that WebDAV uses, and names in directories.

use crate::http::{
    request::conditions::Validators,
    response::{Outcome, Rejection},
};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use longhaul_linux::random::random_bytes;
use longhaul_store::{
    path::RelPath,
    root::{Names, Root},
};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::{fs::File, os::fd::AsFd};

/// Most names of a directory that are read: some 30 MB of memory. A larger directory can't be listed, copied or deleted.
const NAMES_MAX: usize = 1_000_000;

/// Returns the names in a directory.
///
/// # Errors
/// Some of it can't be read. A partial list would silently omit entries.
pub(crate) fn names(root: &Root, directory: Option<&RelPath>) -> Outcome<Names> {
    match root.list_up_to(directory, NAMES_MAX)? {
        (names, None) => Ok(names),
        (_, Some(failure)) if failure.errno() == Some(Errno::FBIG) => Err(Rejection(
            507,
            "a directory has more than 1,000,000 entries",
        )),
        (_, Some(failure)) => Err(failure.into()),
    }
}

/// Joins a directory and a name in it.
pub(crate) fn within(directory: Option<&RelPath>, name: &[u8]) -> Outcome<RelPath> {
    let path = match directory {
        Some(directory) => directory.join(name),
        None => RelPath::parse(name),
    };
    path.map_err(|_| Errno::NAMETOOLONG.into())
}

/// Returns a random name in the directory of a path, for an internal file of this kind.
pub(crate) fn internal_name(path: &RelPath, kind: &str) -> Outcome<RelPath> {
    let number = u64::from_ne_bytes(random_bytes()?);
    let name = format!(".longhaul-{number:016x}.{kind}");
    within(path.parent().as_ref(), name.as_bytes())
}

/// Returns nothing for a missing file.
pub(crate) fn optional(meta: Outcome<Meta>) -> Outcome<Option<Meta>> {
    match meta {
        Err(missing) if missing == Errno::NOENT.into() => Ok(None),
        meta => meta.map(Some),
    }
}

/// Metadata of a file or a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta(Stat);

impl Meta {
    /// Returns the metadata of any kind of file. `None` is the root.
    pub(crate) fn stat(root: &Root, path: Option<&RelPath>) -> Outcome<Self> {
        match path {
            Some(path) => Ok(Self(root.stat(path)?)),
            None => Self::of(&*root.dir_fd(None)?),
        }
    }

    /// Returns the metadata of a visible file: a regular file or a directory.
    pub(crate) fn visible(root: &Root, path: Option<&RelPath>) -> Outcome<Self> {
        let meta = Self::stat(root, path)?;
        let is_visible = meta.is_file() || meta.is_dir();
        is_visible
            .then_some(meta)
            .ok_or(Rejection(404, "not found"))
    }

    /// Returns the metadata of a file that a new one is to replace, or `None` if the name is free. Symbolic links and
    /// devices can't be replaced.
    pub(crate) fn replaceable(root: &Root, path: &RelPath) -> Outcome<Option<Self>> {
        const OTHER: Rejection = Rejection(403, "the name is that of a symbolic link or a device");
        match optional(Self::stat(root, Some(path)))? {
            Some(meta) if !meta.is_file() && !meta.is_dir() => Err(OTHER),
            meta => Ok(meta),
        }
    }

    /// Returns the metadata of an open file.
    pub(crate) fn of(file: impl AsFd) -> Outcome<Self> {
        Ok(Self(rustix::fs::fstat(file)?))
    }

    /// Opens a regular file for reading. Refuses any other kind.
    pub(crate) fn open(root: &Root, path: &RelPath) -> Outcome<(File, Self)> {
        // The kind is checked first, since opening a device may have an effect.
        Self::visible(root, Some(path))?;
        let file = root.open_file(path)?;
        let meta = Self::of(&file)?;
        if meta.is_file() {
            Ok((file, meta))
        } else {
            Err(Rejection(403, "it is no regular file"))
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.0.st_mode).is_dir()
    }

    pub(crate) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.0.st_mode).is_file()
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.0.st_mode & 0o100 != 0
    }

    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.0.st_size).unwrap_or(0)
    }

    /// Returns the device and the inode, which all names of a file share.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.0.st_dev, self.0.st_ino)
    }

    /// Returns the time of the contents, in seconds since 1970.
    pub(crate) fn modified_s(&self) -> i64 {
        self.0.st_mtime
    }

    pub(crate) fn modified(&self) -> Option<Timestamp> {
        Timestamp::new(self.0.st_mtime, self.0.st_mtime_nsec as i32).ok()
    }

    /// Returns the time of the contents as an HTTP date.
    pub(crate) fn http_date(&self) -> Option<String> {
        let printer = DateTimePrinter::new();
        printer.timestamp_to_rfc9110_string(&self.modified()?).ok()
    }

    /// Returns the earliest time that is known of the file. Not all file systems keep the time of its creation.
    pub(crate) fn first_time(&self) -> Option<Timestamp> {
        let changed = Timestamp::new(self.0.st_ctime, self.0.st_ctime_nsec as i32).ok();
        changed.into_iter().chain(self.modified()).min()
    }

    /// Returns the entity tag. It contains the inode, since a file may be replaced within one tick of the clock, and the
    /// time of the last change, since clients choose the other time, and inodes are used again.
    pub(crate) fn etag(&self) -> String {
        let (inode, size) = (self.0.st_ino, self.len());
        let (seconds, nanos) = (self.0.st_mtime, self.0.st_mtime_nsec);
        let (changed, changed_nanos) = (self.0.st_ctime, self.0.st_ctime_nsec);
        format!("\"{inode:x}-{size:x}-{seconds:x}.{nanos:x}-{changed:x}.{changed_nanos:x}\"")
    }

    pub(crate) fn validators(&self) -> Validators {
        Validators {
            tag: self.etag(),
            modified: self.modified_s(),
        }
    }
}
