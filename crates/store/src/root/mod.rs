// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory beyond which nothing is touched.
//!
//! Every name below it is resolved from its descriptor, by the kernel, without following a
//! symbolic link: whatever names arrive, and whatever others do to the directories meanwhile. What
//! this cannot prevent: a directory that somebody moves out of the tree with `rename` while we
//! hold it open stays the directory it is, and what we were about to make in it arrives there.

mod directories;
mod failure;
mod names;

pub use failure::{Failure, Refusal};
pub use names::Names;

use crate::{
    metadata::{
        self, LeftOut, Metadata,
        handle::{Handle, SAFE, handle, named, quietly},
    },
    path::RelPath,
};
use directories::Directories;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};
use std::{fmt, fs::File, io, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// Where new directories and files begin: nobody else's until their metadata is set.
const PRIVATE_DIR: Mode = Mode::RWXU;

/// A directory beyond which nothing is touched. See the module.
pub struct Root {
    directories: Directories,
    /// Device and inode of directories that stay where they are.
    kept: Arc<[(u64, u64)]>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("top", self.directories.top())
            .finish()
    }
}

impl Root {
    /// A directory that is there. Symbolic links in this one path are followed: the user wrote it.
    ///
    /// # Errors
    /// The system's, without the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let top = fs::open(
            path,
            OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH,
            Mode::empty(),
        )?;
        Ok(Self::of(top))
    }

    /// A directory that is there, by an absolute path without symbolic links: a name in it that has become a link since is
    /// refused. What is mounted there is opened.
    ///
    /// # Errors
    /// The system's, without the path; `ELOOP` if a symbolic link is on the way.
    pub fn open_without_links(path: &Path) -> io::Result<Self> {
        let top = Self::open(Path::new("/"))?;
        let bytes = path.as_os_str().as_bytes();
        let below = bytes.strip_prefix(b"/").unwrap_or(bytes);
        if below.is_empty() {
            return Ok(top);
        }
        let below = RelPath::parse(below).map_err(io::Error::other)?;
        top.below(Some(&below))
            .map_err(|failure| failure.errno().unwrap_or(Errno::IO).into())
    }

    /// Keeps directories, given by device and inode, where they are: as with a mount point, nothing removes, replaces or
    /// moves them (`EBUSY`).
    #[must_use]
    pub fn keeping(mut self, directories: impl IntoIterator<Item = (u64, u64)>) -> Self {
        self.kept = directories.into_iter().collect();
        self
    }

    /// A directory that is made if it is not there, with those that it is in.
    ///
    /// # Errors
    /// The system's, without the path.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// A directory below this root as a root of its own, beyond which nothing is touched either; none is the same
    /// directory.
    ///
    /// # Errors
    /// It is none, or a symbolic link is on the way.
    pub fn below(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        let dir = self.dir(path)?;
        let top = rustix::io::fcntl_dupfd_cloexec(&dir, 0);
        let top = top.map_err(Failure::at(path, "open the directory"))?;
        Ok(Self {
            kept: Arc::clone(&self.kept),
            ..Self::of(top)
        })
    }

    /// The same, made if it is not there, with those that it is in.
    ///
    /// # Errors
    /// As [`Root::below`], or the system's.
    pub fn below_or_create(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        match path.map(|path| self.make_plain_dir(path)) {
            Some(Err(failure)) if failure.is_not_found() => {
                let around = path.and_then(RelPath::parent);
                let around = self.below_or_create(Some(&around.ok_or(failure)?))?;
                let name = path.map(|path| RelPath::parse(path.name())).transpose()?;
                around.below_or_create(name.as_ref())
            }
            Some(Err(failure)) if failure.errno() != Some(Errno::EXIST) => Err(failure),
            _ => self.below(path),
        }
    }

    /// The directory that `path` is in and its name there, or, where that is not there, the nearest one around it and what
    /// leads from there.
    ///
    /// # Errors
    /// As [`Root::below`].
    pub fn nearest(&self, path: &RelPath) -> Result<(Self, RelPath), Failure> {
        let mut around = path.parent();
        loop {
            match self.below(around.as_ref()) {
                Err(failure) if failure.is_not_found() => {
                    around = around.as_ref().and_then(RelPath::parent);
                }
                Err(failure) => return Err(failure),
                Ok(root) => {
                    let name = around.and_then(|around| path.below(&around));
                    return Ok((root, name.unwrap_or_else(|| path.clone())));
                }
            }
        }
    }

    /// Makes a directory that whoever the umask allows may use, as mkdir(1) does.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_plain_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777))
            .map_err(Failure::at(Some(path), "make the directory"))
    }

    fn of(top: OwnedFd) -> Self {
        Self {
            directories: Directories::below(top),
            kept: Arc::default(),
        }
    }

    /// A descriptor that names a directory, for `*at` calls. It cannot be read or synced: see
    /// [`Root::open_dir`]. None is the top.
    ///
    /// # Errors
    /// It is none, or a symbolic link is on the way.
    pub fn dir(&self, path: Option<&RelPath>) -> Result<Arc<OwnedFd>, Failure> {
        match path {
            Some(path) => self.directories.find(path),
            None => Ok(Arc::clone(self.directories.top())),
        }
        .map_err(Failure::at(path, "open the directory"))
    }

    /// A directory's descriptor for listing and syncing, with an offset of its own.
    ///
    /// # Errors
    /// As [`Root::dir`], or it must not be read.
    pub fn open_dir(&self, path: Option<&RelPath>) -> Result<OwnedFd, Failure> {
        let dir = self.dir(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        quietly(|quiet| fs::openat(&dir, ".", flags | quiet, Mode::empty()))
            .map_err(Failure::at(path, "read the directory"))
    }

    /// The directory that `path` is in, and its name there.
    pub(crate) fn place<'p>(&self, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), Failure> {
        Ok((self.dir(path.parent().as_ref())?, path.name()))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the system says; a symbolic link is none.
    pub fn open_file(&self, path: &RelPath) -> Result<File, Failure> {
        let (dir, name) = self.place(path)?;
        quietly(|quiet| fs::openat(&dir, name, OFlags::RDONLY | SAFE | quiet, Mode::empty()))
            .map(File::from)
            .map_err(Failure::at(Some(path), "open"))
    }

    /// Opens or makes a file as `flags` say; symbolic links are never followed.
    ///
    /// # Errors
    /// As the system says.
    pub fn open_with(&self, path: &RelPath, flags: OFlags, mode: Mode) -> Result<File, Failure> {
        let (dir, name) = self.place(path)?;
        fs::openat(&dir, name, flags | SAFE, mode)
            .map(File::from)
            .map_err(Failure::at(Some(path), "open"))
    }

    /// What is known of the name itself, not of what it may point to.
    ///
    /// # Errors
    /// As the system says.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, Failure> {
        let (dir, name) = self.place(path)?;
        fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Failure::at(Some(path), "look at"))
    }

    /// Whether it is a directory. A symbolic link is none.
    pub fn is_dir(&self, path: &RelPath) -> bool {
        self.stat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    /// Reads the metadata of what is there, and what of it could not be read.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn metadata(&self, path: &RelPath) -> Result<(Metadata, Vec<LeftOut>), Failure> {
        self.handle(path).map(|handle| Metadata::of(&handle))
    }

    /// Holds what is there, for its metadata.
    pub(crate) fn handle(&self, path: &RelPath) -> Result<Handle, Failure> {
        let (dir, name) = self.place(path)?;
        handle(dir.as_fd(), name).map_err(Failure::at(Some(path), "look at"))
    }

    /// Holds the top.
    pub(crate) fn top_handle(&self) -> Result<Handle, Failure> {
        let fd = self.open_dir(None)?;
        let stat = fs::fstat(&fd).map_err(Failure::at(None, "look at"))?;
        Ok(Handle {
            fd,
            stat,
            unreadable: None,
        })
    }

    /// Sees to it that things can be made in a directory, if it is ours: a read-only one cannot be
    /// filled. It is for the caller to give it its mode again.
    pub(crate) fn unlock(&self, path: Option<&RelPath>) -> Result<(), Failure> {
        match self.may(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Ok(false) => {}
            // No mode helps there: what is to be made fails by its own name.
            Err(failure) if failure.errno() == Some(Errno::ROFS) => return Ok(()),
            may => return may.map(drop),
        }
        let held = match path {
            Some(path) => self.handle(path)?,
            None => {
                named(self.directories.top().as_fd(), b".").map_err(Failure::at(path, "look at"))?
            }
        };
        match held.kind() {
            FileType::Directory => metadata::unlock(&held).map_err(Failure::at(path, "unlock")),
            _ => Err(Failure::at(path, "unlock")(Errno::NOTDIR)),
        }
    }

    /// Whether we have these rights to a directory.
    pub(crate) fn may(&self, path: Option<&RelPath>, rights: Access) -> Result<bool, Failure> {
        let (dir, name) = match path {
            Some(path) => self.place(path)?,
            None => (self.dir(None)?, &b"."[..]),
        };
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        match fs::accessat(&dir, name, rights, flags) {
            Ok(()) => Ok(true),
            // The call may not be known: the caller then makes sure.
            Err(Errno::ACCESS | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(Failure::at(path, "look at")(errno)),
        }
    }

    /// What is in a directory, in order; with the error that ended the list early, if one did.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn list(&self, path: Option<&RelPath>) -> Result<(Names, Option<Failure>), Failure> {
        let dir = self.open_dir(path)?;
        let (names, error) = Names::read(dir.as_fd());
        Ok((names, error.map(Failure::at(path, "read the directory"))))
    }

    /// The same of a directory that may be of any size: so many names at most, and `EFBIG` if there are more.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn list_up_to(
        &self,
        path: Option<&RelPath>,
        count: usize,
    ) -> Result<(Names, Option<Failure>), Failure> {
        let dir = self.open_dir(path)?;
        let (names, error) = Names::read_up_to(dir.as_fd(), count);
        Ok((names, error.map(Failure::at(path, "read the directory"))))
    }

    /// Makes a directory that only we may use, until it gets its metadata.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mkdirat(&dir, name, PRIVATE_DIR).map_err(Failure::at(Some(path), "make the directory"))
    }

    /// Makes a symbolic link. Where it points is data: any bytes without a NUL.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::symlinkat(target, &dir, name).map_err(Failure::at(Some(path), "make the symbolic link"))
    }

    /// Gives what is called `old` a second name. A symbolic link gets one itself.
    ///
    /// # Errors
    /// As the system says.
    pub fn link(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) = (self.place(old)?, self.place(new)?);
        fs::linkat(&old_dir, old_name, &new_dir, new_name, AtFlags::empty())
            .map_err(Failure::at(Some(new), "make the hard link"))
    }

    /// Makes a fifo or a device that only we may use, until it gets its metadata.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_node(&self, path: &RelPath, kind: FileType, device: u64) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mknodat(&dir, name, kind, Mode::RUSR | Mode::WUSR, device)
            .map_err(Failure::at(Some(path), "make the special file"))
    }

    /// Removes what is no directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::unlinkat(&dir, name, AtFlags::empty()).map_err(Failure::at(Some(path), "remove"))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the system says; it is one to keep.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        self.directories.forget(path);
        self.refuse_kept(&dir, name)
            .and_then(|()| fs::unlinkat(&dir, name, AtFlags::REMOVEDIR))
            .map_err(Failure::at(Some(path), "remove the directory"))
    }

    /// Renames, over what is called `new` if that is no directory.
    ///
    /// # Errors
    /// As the system says; a directory to keep is called `old` or `new`.
    pub fn rename(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        self.rename_by(old, new, |old_dir, old_name, new_dir, new_name| {
            fs::renameat(old_dir, old_name, new_dir, new_name)
        })
    }

    /// Renames if nothing is called `new`, in one step where the file system has one.
    ///
    /// # Errors
    /// As [`Root::rename`]; `EEXIST` if something is called `new`.
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

    /// Gives each of two the other's name, in one step.
    ///
    /// # Errors
    /// As [`Root::rename`], or the file system can't do that ([`lacks_rename_flags`]).
    pub fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), Failure> {
        self.directories.forget(other);
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
        let ((old_dir, old_name), (new_dir, new_name)) = (self.place(old)?, self.place(new)?);
        self.directories.forget(old);
        self.refuse_kept(&old_dir, old_name)
            .and_then(|()| self.refuse_kept(&new_dir, new_name))
            .and_then(|()| rename(&old_dir, old_name, &new_dir, new_name))
            .map_err(Failure::at(Some(new), "rename to"))
    }

    fn refuse_kept(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        match stat.is_ok_and(|stat| self.kept.contains(&(stat.st_dev, stat.st_ino))) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }
}

/// Whether it may mean that the file system, or the kernel, knows no flags of renameat2(2).
#[must_use]
pub fn lacks_rename_flags(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// A file gets its new name, if that is free, before it loses the old one. A directory replaces at most an empty one, and
/// what has no hard links at most what comes between two system calls.
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
