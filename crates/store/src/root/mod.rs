// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root: a directory outside of which nothing is read or changed.
//!
//! The kernel resolves every name below it from the root's descriptor, without following symbolic
//! links. This holds for any names, and while other processes change the directories. It does not
//! cover a directory that another process moves out of the tree with `rename` while it is open
//! here. New entries are then still created in that directory.

mod directories;
mod failure;
mod names;

pub use failure::{Failure, Refusal};
pub use names::Names;

use crate::{
    metadata::{
        self, Metadata, SkippedField, Time,
        handle::{Handle, SAFE_FLAGS, open_handle, open_path_handle, without_atime},
    },
    path::RelPath,
};
use directories::Directories;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        self, Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, StatxAttributes,
        StatxFlags,
    },
    io::Errno,
};
use std::{fmt, fs::File, io, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// Mode of new directories and files: for this user only until their metadata is set.
const PRIVATE_DIR: Mode = Mode::RWXU;

/// Directory outside of which nothing is read or changed. See the module.
pub struct Root {
    directories: Directories,
    /// Device and inode numbers of protected directories.
    protected: Arc<[(u64, u64)]>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("top", self.directories.top())
            .finish()
    }
}

impl Root {
    /// Opens an existing directory. Symbolic links in this path are followed, because the user
    /// wrote it.
    ///
    /// # Errors
    /// The system's error, without the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let top = fs::open(
            path,
            OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH,
            Mode::empty(),
        )?;
        Ok(Self::of(top))
    }

    /// Opens an existing directory by an absolute path without symbolic links. A name in it that
    /// has become a link since is refused. Mount points are entered.
    ///
    /// # Errors
    /// The system's error, without the path; `ELOOP` for a symbolic link in the path.
    pub fn open_without_links(path: &Path) -> io::Result<Self> {
        let top = Self::open(Path::new("/"))?;
        let bytes = path.as_os_str().as_bytes();
        let below = bytes.strip_prefix(b"/").unwrap_or(bytes);
        if below.is_empty() {
            return Ok(top);
        }
        let below = RelPath::parse(below).map_err(io::Error::other)?;
        top.subroot(Some(&below))
            .map_err(|failure| failure.errno().unwrap_or(Errno::IO).into())
    }

    /// Protects directories, given by device and inode number: like mount points, they cannot be
    /// removed, replaced or moved (`EBUSY`).
    #[must_use]
    pub fn with_protected(mut self, directories: impl IntoIterator<Item = (u64, u64)>) -> Self {
        self.protected = directories.into_iter().collect();
        self
    }

    /// Opens a directory, and creates it and its parents if missing.
    ///
    /// # Errors
    /// The system's error, without the path.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Opens a directory below this root as a root of its own. `None` opens this directory again.
    ///
    /// # Errors
    /// The path is not a directory, or contains a symbolic link.
    pub fn subroot(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        let dir = self.dir_fd(path)?;
        let top = rustix::io::fcntl_dupfd_cloexec(&dir, 0);
        let top = top.map_err(Failure::at(path, "open the directory"))?;
        Ok(Self {
            protected: Arc::clone(&self.protected),
            ..Self::of(top)
        })
    }

    /// Opens a directory below this root as a root of its own, and creates it and its parents if
    /// missing.
    ///
    /// # Errors
    /// As [`Root::subroot`], or the system's error.
    pub fn subroot_or_create(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        match path.map(|path| self.make_dir_with_umask(path)) {
            Some(Err(failure)) if failure.is_not_found() => {
                let ancestor = path.and_then(RelPath::parent);
                let ancestor = self.subroot_or_create(Some(&ancestor.ok_or(failure)?))?;
                let name = path.map(|path| RelPath::parse(path.name())).transpose()?;
                ancestor.subroot_or_create(name.as_ref())
            }
            Some(Err(failure)) if failure.errno() != Some(Errno::EXIST) => Err(failure),
            _ => self.subroot(path),
        }
    }

    /// Opens the parent directory of `path`, or its nearest existing ancestor. Returns it with the
    /// rest of the path.
    ///
    /// # Errors
    /// As [`Root::subroot`].
    pub fn nearest_subroot(&self, path: &RelPath) -> Result<(Self, RelPath), Failure> {
        let mut ancestor = path.parent();
        loop {
            match self.subroot(ancestor.as_ref()) {
                Err(failure) if failure.is_not_found() => {
                    ancestor = ancestor.as_ref().and_then(RelPath::parent);
                }
                Err(failure) => return Err(failure),
                Ok(root) => {
                    let name = ancestor.and_then(|ancestor| path.strip_prefix(&ancestor));
                    return Ok((root, name.unwrap_or_else(|| path.clone())));
                }
            }
        }
    }

    /// Creates a directory with the mode that the umask allows, as mkdir(1) does.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_dir_with_umask(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777))
            .map_err(Failure::at(Some(path), "create the directory"))
    }

    fn of(top: OwnedFd) -> Self {
        Self {
            directories: Directories::new(top),
            protected: Arc::default(),
        }
    }

    /// Descriptor that names a directory, for `*at` calls. It cannot be read or synced: see
    /// [`Root::open_dir`]. `None` is the top.
    ///
    /// # Errors
    /// The path is not a directory, or contains a symbolic link.
    pub fn dir_fd(&self, path: Option<&RelPath>) -> Result<Arc<OwnedFd>, Failure> {
        match path {
            Some(path) => self.directories.find(path),
            None => Ok(Arc::clone(self.directories.top())),
        }
        .map_err(Failure::at(path, "open the directory"))
    }

    /// Unit of times in the file system at the top, in seconds, if it is longer than one: 2 for FAT, else 0.
    #[must_use]
    pub fn time_unit_s(&self) -> u32 {
        /// linux/magic.h
        const MSDOS_SUPER_MAGIC: u64 = 0x4d44;
        let found = fs::fstatfs(self.directories.top());
        let is_fat = found.is_ok_and(|found| found.f_type.cast_unsigned() == MSDOS_SUPER_MAGIC);
        if is_fat { 2 } else { 0 }
    }

    /// Descriptor of a directory for listing and syncing, with an offset of its own.
    ///
    /// # Errors
    /// As [`Root::dir_fd`], or the directory must not be read.
    pub fn open_dir(&self, path: Option<&RelPath>) -> Result<OwnedFd, Failure> {
        let dir = self.dir_fd(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        without_atime(|atime_flag| fs::openat(&dir, ".", flags | atime_flag, Mode::empty()))
            .map_err(Failure::at(path, "read the directory"))
    }

    /// Descriptor of a directory for creating and syncing entries in it. Without the right to list the directory, as for a
    /// drop box, [`Dir::sync`](crate::vfs::Dir) makes more durable than that directory.
    ///
    /// # Errors
    /// As [`Root::dir_fd`].
    pub fn open_dir_to_write(&self, path: Option<&RelPath>) -> Result<OwnedFd, Failure> {
        match self.open_dir(path) {
            Err(failure) if failure.errno() == Some(Errno::ACCESS) => {
                let dir = self.dir_fd(path)?;
                rustix::io::fcntl_dupfd_cloexec(&dir, 0)
                    .map_err(Failure::at(path, "open the directory"))
            }
            opened => opened,
        }
    }

    /// Directory of `path`, and the name in it.
    pub(crate) fn dir_and_name<'p>(
        &self,
        path: &'p RelPath,
    ) -> Result<(Arc<OwnedFd>, &'p [u8]), Failure> {
        Ok((self.dir_fd(path.parent().as_ref())?, path.name()))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system's error; a symbolic link is refused.
    pub fn open_file(&self, path: &RelPath) -> Result<File, Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        without_atime(|atime_flag| {
            fs::openat(
                &dir,
                name,
                OFlags::RDONLY | SAFE_FLAGS | atime_flag,
                Mode::empty(),
            )
        })
        .map(File::from)
        .map_err(Failure::at(Some(path), "open"))
    }

    /// Opens or creates a file with these `flags`. Symbolic links are never followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_with(&self, path: &RelPath, flags: OFlags, mode: Mode) -> Result<File, Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::openat(&dir, name, flags | SAFE_FLAGS, mode)
            .map(File::from)
            .map_err(Failure::at(Some(path), "open"))
    }

    /// State of the entry itself; a symbolic link is not followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Failure::at(Some(path), "access"))
    }

    /// Time at which an entry, or the top, was created. `None` if the file system does not keep it.
    #[must_use]
    pub fn birth_time(&self, path: Option<&RelPath>) -> Option<Time> {
        let (flags, wanted) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME);
        let stat = match path {
            Some(path) => {
                let (dir, name) = self.dir_and_name(path).ok()?;
                fs::statx(&dir, name, flags, wanted)
            }
            None => fs::statx(self.directories.top(), c".", flags, wanted),
        };
        let stat = stat.ok()?;
        (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(Time {
            seconds: stat.stx_btime.tv_sec,
            nanos: stat.stx_btime.tv_nsec,
        })
    }

    /// Whether something is mounted at a path. Its device does not tell: a subvolume of btrfs has its own, and so have
    /// files of an overlay. Kernels before 5.8 cannot say, so the answer is no.
    pub fn is_mount_point(&self, path: &RelPath) -> Result<bool, Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        let (flags, wanted) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
        fs::statx(&dir, name, flags, wanted)
            .map(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
            .map_err(Failure::at(Some(path), "access"))
    }

    /// Whether the entry is a directory. A symbolic link is not.
    pub fn is_dir(&self, path: &RelPath) -> bool {
        self.stat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    /// Reads the metadata of an entry, with the fields that could not be read.
    ///
    /// # Errors
    /// The entry cannot be opened.
    pub fn metadata(&self, path: &RelPath) -> Result<(Metadata, Vec<SkippedField>), Failure> {
        self.handle(path).map(|handle| Metadata::of(&handle))
    }

    /// Opens an entry, to read or set its metadata.
    pub(crate) fn handle(&self, path: &RelPath) -> Result<Handle, Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        open_handle(dir.as_fd(), name).map_err(Failure::at(Some(path), "access"))
    }

    /// Opens the top, to read or set its metadata.
    pub(crate) fn top_handle(&self) -> Result<Handle, Failure> {
        open_handle(self.directories.top().as_fd(), b".").map_err(Failure::at(None, "access"))
    }

    /// Makes a directory of this user readable and writable, so that entries can be created in it.
    /// The caller must restore the mode.
    pub(crate) fn make_writable(&self, path: Option<&RelPath>) -> Result<(), Failure> {
        match self.has_access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Ok(false) => {}
            // No mode helps on a read-only file system: creating an entry will fail with its own
            // name.
            Err(failure) if failure.errno() == Some(Errno::ROFS) => return Ok(()),
            result => return result.map(drop),
        }
        let handle = match path {
            Some(path) => self.handle(path)?,
            None => open_path_handle(self.directories.top().as_fd(), b".")
                .map_err(Failure::at(path, "access"))?,
        };
        match handle.kind() {
            FileType::Directory => {
                metadata::grant_owner_access(&handle).map_err(Failure::at(path, "make it writable"))
            }
            _ => Err(Failure::at(path, "make it writable")(Errno::NOTDIR)),
        }
    }

    /// Whether this user has these permissions on a directory.
    pub(crate) fn has_access(
        &self,
        path: Option<&RelPath>,
        rights: Access,
    ) -> Result<bool, Failure> {
        let (dir, name) = match path {
            Some(path) => self.dir_and_name(path)?,
            None => (self.dir_fd(None)?, &b"."[..]),
        };
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        match fs::accessat(&dir, name, rights, flags) {
            Ok(()) => Ok(true),
            // The call may not be supported: the caller then changes the mode.
            Err(Errno::ACCESS | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(Failure::at(path, "access")(errno)),
        }
    }

    /// Names in a directory, sorted, with the error that ended the list early, if any.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn list(&self, path: Option<&RelPath>) -> Result<(Names, Option<Failure>), Failure> {
        let dir = self.open_dir(path)?;
        let (names, error) = Names::read(dir.as_fd());
        Ok((names, error.map(Failure::at(path, "read the directory"))))
    }

    /// Names in a directory of any size, sorted: at most `count` of them, with the error `EFBIG` if
    /// there are more.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn list_up_to(
        &self,
        path: Option<&RelPath>,
        count: usize,
    ) -> Result<(Names, Option<Failure>), Failure> {
        let dir = self.open_dir(path)?;
        let (names, error) = Names::read_up_to(dir.as_fd(), count);
        Ok((names, error.map(Failure::at(path, "read the directory"))))
    }

    /// Creates a directory that only this user may use until its metadata is set.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::mkdirat(&dir, name, PRIVATE_DIR)
            .map_err(Failure::at(Some(path), "create the directory"))
    }

    /// Creates a symbolic link. The target is data: any bytes without a NUL.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::symlinkat(target, &dir, name)
            .map_err(Failure::at(Some(path), "create the symbolic link"))
    }

    /// Creates a hard link `new` to `old`. A symbolic link is not followed, but linked itself.
    ///
    /// # Errors
    /// The system's error.
    pub fn link(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) =
            (self.dir_and_name(old)?, self.dir_and_name(new)?);
        fs::linkat(&old_dir, old_name, &new_dir, new_name, AtFlags::empty())
            .map_err(Failure::at(Some(new), "create the hard link"))
    }

    /// Creates a fifo or a device that only this user may use until its metadata is set.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_node(&self, path: &RelPath, kind: FileType, device: u64) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::mknodat(&dir, name, kind, Mode::RUSR | Mode::WUSR, device)
            .map_err(Failure::at(Some(path), "create the special file"))
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        fs::unlinkat(&dir, name, AtFlags::empty()).map_err(Failure::at(Some(path), "remove"))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The system's error; `EBUSY` for a protected directory.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.dir_and_name(path)?;
        self.directories.evict(path);
        self.refuse_protected(&dir, name)
            .and_then(|()| fs::unlinkat(&dir, name, AtFlags::REMOVEDIR))
            .map_err(Failure::at(Some(path), "remove the directory"))
    }

    /// Renames an entry, replacing `new` if that is not a directory.
    ///
    /// # Errors
    /// The system's error; `EBUSY` if `old` or `new` is a protected directory.
    pub fn rename(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        self.rename_by(old, new, |old_dir, old_name, new_dir, new_name| {
            fs::renameat(old_dir, old_name, new_dir, new_name)
        })
    }

    /// Renames an entry if `new` does not exist, in one step where the file system can.
    ///
    /// # Errors
    /// As [`Root::rename`]; `EEXIST` if `new` exists.
    pub fn rename_to_new(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        self.rename_by(old, new, |old_dir, old_name, new_dir, new_name| {
            let flags = RenameFlags::NOREPLACE;
            match fs::renameat_with(old_dir, old_name, new_dir, new_name, flags) {
                Err(errno) if lacks_rename_flags(errno) => {
                    rename_by_link(old_dir, old_name, new_dir, new_name)
                }
                renamed => renamed,
            }
        })
    }

    /// Exchanges two names in one step.
    ///
    /// # Errors
    /// As [`Root::rename`], or the file system cannot exchange names ([`lacks_rename_flags`]).
    pub fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), Failure> {
        self.directories.evict(other);
        self.rename_by(one, other, |one_dir, one_name, other_dir, other_name| {
            let flags = RenameFlags::EXCHANGE;
            fs::renameat_with(one_dir, one_name, other_dir, other_name, flags)
        })
    }

    fn rename_by(
        &self,
        old: &RelPath,
        new: &RelPath,
        rename: impl Fn(&OwnedFd, &[u8], &OwnedFd, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) =
            (self.dir_and_name(old)?, self.dir_and_name(new)?);
        self.directories.evict(old);
        self.refuse_protected(&old_dir, old_name)
            .and_then(|()| self.refuse_protected(&new_dir, new_name))
            .and_then(|()| rename(&old_dir, old_name, &new_dir, new_name))
            .map_err(Failure::at(Some(new), "rename to"))
    }

    fn refuse_protected(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if self.protected.is_empty() {
            return Ok(());
        }
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| self.protected.contains(&(stat.st_dev, stat.st_ino))) {
            Err(Errno::BUSY)
        } else {
            Ok(())
        }
    }
}

/// Whether the error may mean that the file system, or the kernel, does not support the flags of
/// renameat2(2).
#[must_use]
pub fn lacks_rename_flags(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Renames by linking: a file gets its new name, if that is free, before it loses the old one. A
/// directory may replace an empty one. An entry without hard links may replace one that is created
/// between two system calls.
fn rename_by_link(
    old_dir: &OwnedFd,
    old_name: &[u8],
    new_dir: &OwnedFd,
    new_name: &[u8],
) -> Result<(), Errno> {
    match fs::linkat(old_dir, old_name, new_dir, new_name, AtFlags::empty()) {
        Ok(()) => fs::unlinkat(old_dir, old_name, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS) => {
            match fs::statat(new_dir, new_name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => fs::renameat(old_dir, old_name, new_dir, new_name),
                Err(errno) => Err(errno),
            }
        }
        linked => linked,
    }
}

#[cfg(test)]
mod tests;
