// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata of files in the form that WebDAV uses, and conversion of errors.

use dav_server::fs::{DavMetaData, FsError, FsResult};
use jiff::Timestamp;
use longhaul_store::{
    path::{BadPath, RelPath},
    root::{Failure, Names, Root},
};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::time::{Duration, SystemTime};

/// Most names of a directory that are read: some 30 MB of memory. A larger directory can't be listed, copied or deleted.
const NAMES_MAX: usize = 1_000_000;

/// Runs an operation on a blocking thread and waits for it.
pub(crate) async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> FsResult<T> + Send + 'static,
) -> FsResult<T> {
    let done = tokio::task::spawn_blocking(operation).await;
    done.unwrap_or(Err(FsError::GeneralFailure))
}

/// Parses a path below an export, with or without slashes around it. `None` is the export itself.
pub(crate) fn rel_path(bytes: &[u8]) -> Result<Option<RelPath>, BadPath> {
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    if bytes.is_empty() {
        Ok(None)
    } else {
        RelPath::parse(bytes).map(Some)
    }
}

/// Returns the names in a directory.
///
/// # Errors
/// Some of it can't be read. A partial list would silently omit entries.
pub(super) fn names(root: &Root, directory: Option<&RelPath>) -> FsResult<Names> {
    match root
        .list_up_to(directory, NAMES_MAX)
        .map_err(from_failure)?
    {
        (names, None) => Ok(names),
        (_, Some(failure)) => Err(from_failure(failure)),
    }
}

/// Joins a directory and a name in it.
pub(crate) fn within(directory: Option<&RelPath>, name: &[u8]) -> FsResult<RelPath> {
    let path = match directory {
        Some(directory) => directory.join(name),
        None => RelPath::parse(name),
    };
    path.map_err(|_| FsError::PathTooLong)
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
pub(crate) fn from_failure(failure: Failure) -> FsError {
    failure.errno().map_or(FsError::Forbidden, errno)
}

pub(super) fn errno(errno: Errno) -> FsError {
    match errno {
        // A symbolic link in the path leads nowhere.
        Errno::NOENT | Errno::LOOP | Errno::NOTDIR => FsError::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => FsError::Exists,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::ISDIR => FsError::Forbidden,
        Errno::NOSPC | Errno::DQUOT => FsError::InsufficientStorage,
        Errno::FBIG => FsError::TooLarge,
        Errno::NAMETOOLONG => FsError::PathTooLong,
        Errno::XDEV => FsError::IsRemote,
        _ => FsError::GeneralFailure,
    }
}

/// Converts an error of the standard library.
#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
pub(crate) fn from_io_error(error: std::io::Error) -> FsError {
    let number = error.raw_os_error();
    number.map_or(FsError::GeneralFailure, |number| {
        errno(Errno::from_raw_os_error(number))
    })
}

/// Metadata of a file or a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta(Stat);

impl Meta {
    /// Returns the metadata of any kind of file.
    pub(crate) fn stat(root: &Root, path: Option<&RelPath>) -> FsResult<Self> {
        let stat = match path {
            Some(path) => root.stat(path),
            None => root.dir_fd(None).and_then(|top| {
                rustix::fs::fstat(&top).map_err(|errno| Failure::System {
                    path: None,
                    action: "look at",
                    errno,
                })
            }),
        };
        stat.map(Self).map_err(from_failure)
    }

    /// Returns the metadata of a visible file: a regular file or a directory.
    pub(crate) fn visible(root: &Root, path: Option<&RelPath>) -> FsResult<Self> {
        let meta = Self::stat(root, path)?;
        match meta.kind() {
            FileType::RegularFile | FileType::Directory => Ok(meta),
            _ => Err(FsError::NotFound),
        }
    }

    /// Returns the metadata of a file that a new one is to replace, or `None` if the name is free. Symbolic links and
    /// devices can't be replaced.
    pub(crate) fn replaceable(root: &Root, path: &RelPath) -> FsResult<Option<Self>> {
        match Self::stat(root, Some(path)) {
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
            Ok(meta) if meta.is_file() || meta.is_dir() => Ok(Some(meta)),
            Ok(_) => Err(FsError::Forbidden),
        }
    }

    pub(crate) fn of(stat: Stat) -> Self {
        Self(stat)
    }

    /// Returns the device and the inode, which all names of a file share.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.0.st_dev, self.0.st_ino)
    }

    /// Returns the time of the contents, in seconds since 1970.
    pub(in crate::http) fn modified_s(&self) -> i64 {
        self.0.st_mtime
    }

    /// Returns the earliest time that is known of the file. Not all file systems keep the time of its creation.
    pub(in crate::http) fn first_time(&self) -> Option<Timestamp> {
        let changed = (self.0.st_ctime, self.0.st_ctime_nsec);
        let (seconds, nanos) = changed.min((self.0.st_mtime, self.0.st_mtime_nsec));
        Timestamp::new(seconds, nanos as i32).ok()
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.st_mode)
    }
}

impl DavMetaData for Meta {
    fn len(&self) -> u64 {
        u64::try_from(self.0.st_size).unwrap_or(0)
    }

    fn modified(&self) -> FsResult<SystemTime> {
        let seconds = u64::try_from(self.0.st_mtime).unwrap_or(0);
        let time = Duration::new(seconds, self.0.st_mtime_nsec as u32);
        Ok(SystemTime::UNIX_EPOCH + time)
    }

    fn is_dir(&self) -> bool {
        self.kind().is_dir()
    }

    fn is_file(&self) -> bool {
        self.kind().is_file()
    }

    fn is_symlink(&self) -> bool {
        self.kind().is_symlink()
    }

    fn executable(&self) -> FsResult<bool> {
        Ok(self.is_file() && self.0.st_mode & 0o100 != 0)
    }

    /// Returns the entity tag. It contains the inode, since a file may be replaced within one tick of the clock, and the
    /// time of the last change, since clients choose the other time, and inodes are used again.
    fn etag(&self) -> Option<String> {
        let (inode, size) = (self.0.st_ino, self.len());
        let (seconds, nanos) = (self.0.st_mtime, self.0.st_mtime_nsec);
        let (changed, changed_nanos) = (self.0.st_ctime, self.0.st_ctime_nsec);
        Some(format!(
            "{inode:x}-{size:x}-{seconds:x}.{nanos:x}-{changed:x}.{changed_nanos:x}"
        ))
    }
}
