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
        self,
        handle::{Handle, SAFE, handle, named, quietly},
    },
    path::RelPath,
};
use directories::Directories;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Access, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{fmt, fs::File, io, path::Path, sync::Arc};

/// Where new directories and files begin: nobody else's until their metadata is set.
const PRIVATE_DIR: Mode = Mode::RWXU;

/// A directory beyond which nothing is touched. See the module.
pub struct Root {
    directories: Directories,
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
        top.map(Self::of)
            .map_err(Failure::at(path, "open the directory"))
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
    /// As the system says.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        self.directories.forget(path);
        fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)
            .map_err(Failure::at(Some(path), "remove the directory"))
    }

    /// Renames, over what is called `new` if that is no directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn rename(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) = (self.place(old)?, self.place(new)?);
        self.directories.forget(old);
        fs::renameat(&old_dir, old_name, &new_dir, new_name)
            .map_err(Failure::at(Some(new), "rename to"))
    }
}

#[cfg(test)]
mod tests;
