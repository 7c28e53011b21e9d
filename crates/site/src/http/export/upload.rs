// SPDX-License-Identifier: MIT OR Apache-2.0
//! File of a PUT or a COPY: written under a temporary name beside its target, and renamed when all of it is on the
//! disk.

use super::{
    attributes,
    meta::{Meta, internal_name},
};
use crate::http::{
    audit::ChangeCounter,
    response::{Outcome, Rejection},
};
use longhaul_store::{path::RelPath, root::Root};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, flock},
    io::Errno,
};
use std::{fs::File, io::Write, sync::Arc};

/// Upload in progress. Dropped before it is committed, it removes its file.
#[derive(Debug)]
pub(crate) struct Upload {
    root: Arc<Root>,
    /// Final path.
    path: RelPath,
    /// Temporary path.
    temporary: RelPath,
    file: File,
    /// Whether the final path must not exist.
    is_new: bool,
    changes: ChangeCounter,
}

impl Upload {
    /// Creates the temporary file. With `is_new`, the final path must not exist, now or later.
    pub(crate) fn begin(
        root: &Arc<Root>,
        path: &RelPath,
        is_new: bool,
        changes: &ChangeCounter,
    ) -> Outcome<Self> {
        replaces_file(root, path, is_new)?;
        let temporary = internal_name(path, "put")?;
        // On NFS a shared lock needs a file that is open for reading, an exclusive one a file that is open for
        // writing.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let upload = Self {
            file: root.open_with(&temporary, flags, Mode::from_raw_mode(0o666))?,
            root: root.clone(),
            path: path.clone(),
            temporary,
            is_new,
            changes: changes.clone(),
        };
        lock_shared(&upload.file)?;
        upload.copy_attributes()?;
        Ok(upload)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.file.write_all(bytes)?;
        self.changes.count_bytes(bytes.len() as u64);
        Ok(())
    }

    /// Copies the contents, rights and attributes of another file of this site.
    pub(crate) fn copy_from(mut self, root: &Root, from: &RelPath) -> Outcome<()> {
        let (mut original, _) = Meta::open(root, from)?;
        attributes::copy(root.metadata(from)?, &self.file, 0)?;
        let copied = std::io::copy(&mut original, &mut self.file)?;
        self.changes.count_bytes(copied);
        self.commit(Self::rename_into_place).map(drop)
    }

    /// Sets the time of the contents, in seconds since 1970.
    pub(crate) fn set_modified(&self, tv_sec: i64) -> Outcome<()> {
        let last_access = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let last_modification = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps {
            last_access,
            last_modification,
        };
        Ok(rustix::fs::futimens(&self.file, &times)?)
    }

    /// Gives the file its name by `rename`, and makes it survive a power loss.
    pub(crate) fn commit(self, rename: impl FnOnce(&Self) -> Outcome<()>) -> Outcome<Meta> {
        self.file.sync_all()?;
        let parent = self.root.open_dir(self.path.parent().as_ref());
        rename(&self)?;
        self.changes.count_entry();
        self.file.sync_all()?;
        match parent {
            Ok(parent) => rustix::fs::fsync(parent),
            // A user who may create names in a directory may still not read it.
            Err(_) => rustix::fs::syncfs(&self.file),
        }?;
        Meta::of(&self.file)
    }

    /// Renames the file to its final path. Others may have created, changed or removed that file since the upload
    /// began.
    pub(crate) fn rename_into_place(&self) -> Outcome<()> {
        if self.copy_attributes()? {
            return Ok(self.root.rename(&self.temporary, &self.path)?);
        }
        match self.root.rename_to_new(&self.temporary, &self.path) {
            Err(failure) if failure.errno() == Some(Errno::EXIST) && !self.is_new => {
                self.rename_into_place()
            }
            renamed => Ok(renamed?),
        }
    }

    /// Copies rights and attributes from the file to be replaced, and returns whether there is one. They belong to
    /// the name, not to the contents.
    fn copy_attributes(&self) -> Outcome<bool> {
        let replaces_file = replaces_file(&self.root, &self.path, self.is_new)?;
        if replaces_file {
            attributes::copy(self.root.metadata(&self.path)?, &self.file, 0)?;
        }
        Ok(replaces_file)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After the rename there is no temporary file.
        let _ = self.root.remove(&self.temporary);
    }
}

/// Returns whether the upload replaces a file. Directories, symbolic links and devices are not replaced.
fn replaces_file(root: &Root, path: &RelPath, is_new: bool) -> Outcome<bool> {
    if is_new && Meta::stat(root, Some(path)).is_ok() {
        return Err(Errno::EXIST.into());
    }
    match Meta::replaceable(root, path)? {
        Some(meta) if meta.is_dir() => Err(Rejection(403, "the name is that of a directory")),
        meta => Ok(meta.is_some()),
    }
}

/// Locks the file, so that others see that the upload is active. Without locks on the file system, its age has to do.
fn lock_shared(file: &File) -> Outcome<()> {
    match flock(file, FlockOperation::LockShared) {
        Err(error) if lacks_locks(error) => Ok(()),
        held => Ok(held?),
    }
}

/// Returns whether the error means that the file system has no locks, and not that the file is locked.
pub(super) fn lacks_locks(error: Errno) -> bool {
    matches!(
        error,
        Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP
    )
}
