// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is being put: written beside its name, and there when all of it is on the disk, or never.

use super::{
    attributes,
    download::Download,
    guard::Guard,
    meta::{Meta, blocking, errno, failed, io, within},
};
use crate::http::audit::Changes;
use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use hyper::StatusCode;
use longhaul_store::{path::RelPath, root::Root};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use std::{
    fs::File,
    io::{SeekFrom, Write},
    sync::Arc,
};

/// Dropped before it was flushed, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Upload(Arc<TempFile>);

#[derive(Debug)]
struct TempFile {
    root: Arc<Root>,
    /// Where it is to be.
    path: RelPath,
    /// Where it is.
    temporary: RelPath,
    file: File,
    /// How long it is to be, if the client said so.
    size: Option<u64>,
    /// Nothing may have its name.
    is_new: bool,
    changes: Changes,
    guard: Guard,
}

impl Upload {
    pub(crate) fn begin(
        root: &Arc<Root>,
        path: RelPath,
        options: &OpenOptions,
        changes: &Changes,
        guard: Guard,
    ) -> FsResult<Self> {
        is_replaced(root, &path, options.create_new)?;
        let temporary = temporary(&path)?;
        // NFS has locks for who may read and write.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = root.open_with(&temporary, flags, Mode::from_raw_mode(0o666));
        let file = TempFile {
            root: root.clone(),
            path,
            temporary,
            file: file.map_err(failed)?,
            size: options.size,
            is_new: options.create_new,
            changes: changes.clone(),
            guard,
        };
        hold(&file.file)?;
        file.take_attributes()?;
        Ok(Self(Arc::new(file)))
    }

    /// It is to be empty.
    pub(crate) fn finish(self) -> FsResult<()> {
        self.0.commit()
    }

    /// Copies all of a file of this site, for those who may have that.
    pub(crate) fn fill(self, root: &Root, from: &RelPath) -> FsResult<()> {
        let reading = Download::open(root, from)?;
        let original = root.metadata(from).map_err(failed)?;
        attributes::copy(original, &self.0.file, 0)?;
        let copied = std::io::copy(&mut reading.file(), &mut &self.0.file);
        let copied = copied.map_err(io)?;
        self.0.changes.count_bytes(copied);
        self.0.commit()
    }

    fn write(&self, bytes: Bytes) -> FsFuture<'static, ()> {
        let file = self.0.clone();
        Box::pin(blocking(move || {
            (&file.file).write_all(&bytes).map_err(io)?;
            file.changes.count_bytes(bytes.len() as u64);
            Ok(())
        }))
    }
}

/// A name of our own in the same directory, which nobody else has.
pub(crate) fn temporary(path: &RelPath) -> FsResult<RelPath> {
    own_name(path, "put")
}

/// The same for what must not be taken for left over, whoever finds it.
pub(crate) fn aside(path: &RelPath) -> FsResult<RelPath> {
    own_name(path, "replaced")
}

fn own_name(path: &RelPath, kind: &str) -> FsResult<RelPath> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(errno)?;
    let name = format!(".longhaul-{:016x}.{kind}", u64::from_ne_bytes(random));
    within(path.parent().as_ref(), name.as_bytes())
}

/// Whoever finds the file sees that it is not left over. Where there are no locks, its age has to say so.
fn hold(file: &File) -> FsResult<()> {
    match flock(file, FlockOperation::LockShared) {
        Err(error) if has_no_locks(error) => Ok(()),
        held => held.map_err(errno),
    }
}

/// Whether it means that a file can't be locked, not that somebody else has locked it.
pub(super) fn has_no_locks(error: Errno) -> bool {
    matches!(
        error,
        Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP
    )
}

/// Whether there is a file that another one is to replace.
fn is_replaced(root: &Root, path: &RelPath, is_new: bool) -> FsResult<bool> {
    match Meta::any(root, Some(path)) {
        Err(FsError::NotFound) => Ok(false),
        Err(error) => Err(error),
        Ok(_) if is_new => Err(FsError::Exists),
        Ok(meta) if meta.is_file() => Ok(true),
        // Directories, links and devices stay.
        Ok(_) => Err(FsError::Forbidden),
    }
}

impl TempFile {
    /// Whether there is a file that it is to replace. It is for those who may have that, and has its attributes: they
    /// are not of its contents.
    fn take_attributes(&self) -> FsResult<bool> {
        let is_replaced = is_replaced(&self.root, &self.path, self.is_new)?;
        if is_replaced {
            let original = self.root.metadata(&self.path).map_err(failed)?;
            attributes::copy(original, &self.file, 0)?;
        }
        Ok(is_replaced)
    }

    /// It is all there, and survives a power loss under its name.
    fn commit(&self) -> FsResult<()> {
        let length = self.file.metadata().map_err(io)?.len();
        if self.size.is_some_and(|size| size != length) {
            return Err(FsError::GeneralFailure);
        }
        self.file.sync_all().map_err(io)?;
        let around = self.root.open_dir(self.path.parent().as_ref());
        let named = self.guard.step(|| self.take_name());
        if self.is_new && named == Err(FsError::Exists) {
            self.guard.refuse(EXISTS);
        }
        named?;
        self.changes.count_entry();
        self.file.sync_all().map_err(io)?;
        match around {
            Ok(around) => rustix::fs::fsync(around),
            // Who may make names in it may not read it.
            Err(_) => rustix::fs::syncfs(&self.file),
        }
        .map_err(errno)
    }

    /// Others may have made, changed or removed what has the name since the file was begun.
    fn take_name(&self) -> FsResult<()> {
        if self.take_attributes()? {
            let replaced = self.root.rename(&self.temporary, &self.path);
            return replaced.map_err(failed);
        }
        let named = self.root.rename_to_new(&self.temporary, &self.path);
        match named.map_err(failed) {
            Err(FsError::Exists) if !self.is_new => self.take_name(),
            named => named,
        }
    }
}

const EXISTS: (StatusCode, &str) = (
    StatusCode::PRECONDITION_FAILED,
    "something has that name already",
);

impl Drop for TempFile {
    fn drop(&mut self) {
        // Under its final name it is gone from here.
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
