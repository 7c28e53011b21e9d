// SPDX-License-Identifier: MIT OR Apache-2.0
//! File of a PUT: written under a temporary name beside its target, and renamed when all of it is on the disk.

use super::{
    attributes,
    download::Download,
    guard::Guard,
    meta::{Meta, blocking, errno, from_failure, from_io_error, within},
    terms::Terms,
};
use crate::http::audit::ChangeCounter;
use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use hyper::StatusCode;
use longhaul_store::{path::RelPath, root::Root};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use std::{
    fs::File,
    io::{SeekFrom, Write},
    sync::Arc,
};

/// Upload in progress. Dropped before it is flushed, it removes its file.
#[derive(Debug)]
pub(crate) struct Upload(Arc<TempFile>);

#[derive(Debug)]
struct TempFile {
    root: Arc<Root>,
    /// Final path.
    path: RelPath,
    /// Temporary path.
    temporary: RelPath,
    file: File,
    /// Announced size in bytes, if the client sent it.
    size: Option<u64>,
    /// Whether the final path must not exist.
    is_new: bool,
    changes: ChangeCounter,
    guard: Guard,
    terms: Mutex<Terms>,
}

impl Upload {
    pub(crate) fn begin(
        root: &Arc<Root>,
        path: RelPath,
        options: &OpenOptions,
        changes: &ChangeCounter,
        (guard, terms): (Guard, Terms),
    ) -> FsResult<Self> {
        replaces_file(root, &path, options.create_new)?;
        let temporary = temporary_name(&path)?;
        // On NFS a shared lock needs a file that is open for reading, an exclusive one a file that is open for
        // writing.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = root.open_with(&temporary, flags, Mode::from_raw_mode(0o666));
        let file = TempFile {
            root: root.clone(),
            path,
            temporary,
            file: file.map_err(from_failure)?,
            size: options.size,
            is_new: options.create_new,
            changes: changes.clone(),
            guard,
            terms: Mutex::new(terms),
        };
        lock_shared(&file.file)?;
        file.copy_attributes()?;
        Ok(Self(Arc::new(file)))
    }

    /// Finishes an empty file.
    pub(crate) fn finish(self) -> FsResult<()> {
        self.0.commit()
    }

    /// Copies the contents, rights and attributes of another file of this site.
    pub(crate) fn copy_from(self, root: &Root, from: &RelPath) -> FsResult<()> {
        let reading = Download::open(root, from)?;
        let original = root.metadata(from).map_err(from_failure)?;
        attributes::copy(original, &self.0.file, 0)?;
        let copied = std::io::copy(&mut reading.file(), &mut &self.0.file);
        let copied = copied.map_err(from_io_error)?;
        self.0.changes.count_bytes(copied);
        self.0.commit()
    }

    fn write(&self, bytes: Bytes) -> FsFuture<'static, ()> {
        let file = self.0.clone();
        Box::pin(blocking(move || {
            (&file.file).write_all(&bytes).map_err(from_io_error)?;
            file.terms.lock().update(&bytes);
            file.changes.count_bytes(bytes.len() as u64);
            Ok(())
        }))
    }
}

/// Returns a random internal name in the same directory for a temporary file.
pub(crate) fn temporary_name(path: &RelPath) -> FsResult<RelPath> {
    internal_name(path, "put")
}

/// Returns a random internal name for a file that must never be removed as abandoned.
pub(crate) fn aside_name(path: &RelPath) -> FsResult<RelPath> {
    internal_name(path, "replaced")
}

fn internal_name(path: &RelPath, kind: &str) -> FsResult<RelPath> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(errno)?;
    let name = format!(".longhaul-{:016x}.{kind}", u64::from_ne_bytes(random));
    within(path.parent().as_ref(), name.as_bytes())
}

/// Locks the file, so that others see that the upload is active. Without locks on the file system, its age has to do.
fn lock_shared(file: &File) -> FsResult<()> {
    match flock(file, FlockOperation::LockShared) {
        Err(error) if lacks_locks(error) => Ok(()),
        held => held.map_err(errno),
    }
}

/// Returns whether the error means that the file system has no locks, and not that the file is locked.
pub(super) fn lacks_locks(error: Errno) -> bool {
    matches!(
        error,
        Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP
    )
}

/// Returns whether the upload replaces a file.
fn replaces_file(root: &Root, path: &RelPath, is_new: bool) -> FsResult<bool> {
    match Meta::stat(root, Some(path)) {
        Err(FsError::NotFound) => Ok(false),
        Err(error) => Err(error),
        Ok(_) if is_new => Err(FsError::Exists),
        Ok(meta) if meta.is_file() => Ok(true),
        // Directories, symbolic links and devices are not replaced.
        Ok(_) => Err(FsError::Forbidden),
    }
}

impl TempFile {
    /// Copies rights and attributes from the file to be replaced, and returns whether there is one. They belong to
    /// the name, not to the contents.
    fn copy_attributes(&self) -> FsResult<bool> {
        let replaces_file = replaces_file(&self.root, &self.path, self.is_new)?;
        if replaces_file {
            let original = self.root.metadata(&self.path).map_err(from_failure)?;
            attributes::copy(original, &self.file, 0)?;
        }
        Ok(replaces_file)
    }

    /// Checks the length, renames the file into place, and makes it survive a power loss.
    fn commit(&self) -> FsResult<()> {
        let length = self.file.metadata().map_err(from_io_error)?.len();
        let terms = self.terms.lock();
        let matches = if self.size.is_some_and(|size| size != length) {
            Err(OTHER_LENGTH)
        } else {
            terms.check()
        };
        if let Err(rejection) = matches {
            self.guard.reject(rejection);
            return Err(FsError::GeneralFailure);
        }
        self.file.sync_all().map_err(from_io_error)?;
        let parent = self.root.open_dir(self.path.parent().as_ref());
        if let Some(times) = terms.times() {
            rustix::fs::futimens(&self.file, &times).map_err(errno)?;
        }
        let named = self.guard.step(|| self.rename_into_place());
        if self.is_new && named == Err(FsError::Exists) {
            self.guard.reject(EXISTS);
        }
        named?;
        self.changes.count_entry();
        self.file.sync_all().map_err(from_io_error)?;
        match parent {
            Ok(parent) => rustix::fs::fsync(parent),
            // A user who may create names in a directory may still not read it.
            Err(_) => rustix::fs::syncfs(&self.file),
        }
        .map_err(errno)
    }

    /// Renames the file to its final path. Others may have created, changed or removed that file since the upload
    /// began.
    fn rename_into_place(&self) -> FsResult<()> {
        if self.copy_attributes()? {
            let replaced = self.root.rename(&self.temporary, &self.path);
            return replaced.map_err(from_failure);
        }
        let named = self.root.rename_to_new(&self.temporary, &self.path);
        match named.map_err(from_failure) {
            Err(FsError::Exists) if !self.is_new => self.rename_into_place(),
            named => named,
        }
    }
}

const OTHER_LENGTH: (StatusCode, &str) = (
    StatusCode::BAD_REQUEST,
    "the body has another length than announced",
);

const EXISTS: (StatusCode, &str) = (StatusCode::PRECONDITION_FAILED, "the name exists already");

impl Drop for TempFile {
    fn drop(&mut self) {
        // After the rename there is no temporary file.
        let _ = self.root.remove(&self.temporary);
    }
}

impl DavFile for Upload {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let file = self.0.clone();
        Box::pin(blocking(move || {
            let stat = rustix::fs::fstat(&file.file).map_err(errno)?;
            Ok(Box::new(Meta::of(stat)) as _)
        }))
    }

    fn write_buf(&mut self, mut bytes: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        let all = bytes.remaining();
        self.write(bytes.copy_to_bytes(all))
    }

    fn write_bytes(&mut self, bytes: Bytes) -> FsFuture<'_, ()> {
        self.write(bytes)
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        let file = self.0.clone();
        Box::pin(blocking(move || file.commit()))
    }

    fn read_bytes(&mut self, _count: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn seek(&mut self, _position: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(async { Err(FsError::Forbidden) })
    }
}
