// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is being put: written beside its name, and there when all of it is on the disk, or never.

use super::{
    attributes,
    download::Download,
    meta::{Meta, blocking, errno, failed, io, within},
};
use crate::http::audit::Changes;
use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use longhaul_store::{path::RelPath, root::Root};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::{
    fs::{File, Permissions},
    io::{SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    sync::Arc,
};

/// Dropped before it was flushed, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Upload(Arc<Begun>);

#[derive(Debug)]
struct Begun {
    root: Arc<Root>,
    /// Where it is to be.
    path: RelPath,
    /// Where it is.
    temporary: RelPath,
    file: File,
    /// How long it is to be, if the client said so.
    size: Option<u64>,
    changes: Changes,
}

impl Upload {
    pub(crate) fn begin(
        root: &Arc<Root>,
        path: RelPath,
        options: &OpenOptions,
        changes: &Changes,
    ) -> FsResult<Self> {
        let there = Meta::replaceable(root, &path)?;
        match &there {
            Some(there) if there.is_dir() => return Err(FsError::Forbidden),
            Some(_) if options.create_new => return Err(FsError::Exists),
            _ => {}
        }
        let temporary = temporary(&path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = root.open_with(&temporary, flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(failed)?;
        // Whoever finds it later sees that it is not left over.
        flock(&file, FlockOperation::NonBlockingLockShared).map_err(errno)?;
        let begun = Begun {
            root: root.clone(),
            path,
            temporary,
            file,
            size: options.size,
            changes: changes.clone(),
        };
        if let Some(there) = there {
            begun.permit(&there)?;
            begun.keep_attributes()?;
        }
        Ok(Self(Arc::new(begun)))
    }

    /// It is to be empty.
    pub(crate) fn finish(self) -> FsResult<()> {
        self.0.commit()
    }

    /// Copies all of a file of this site, for those who may have that.
    pub(crate) fn fill(self, from: &Download) -> FsResult<()> {
        self.0.permit(from.meta())?;
        attributes::copy(from.file(), &self.0.file)?;
        let copied = std::io::copy(&mut from.file(), &mut &self.0.file);
        let copied = copied.map_err(io)?;
        self.0.changes.count_bytes(copied);
        self.0.commit()
    }

    fn write(&self, bytes: Bytes) -> FsFuture<'static, ()> {
        let begun = self.0.clone();
        Box::pin(blocking(move || {
            (&begun.file).write_all(&bytes).map_err(io)?;
            begun.changes.count_bytes(bytes.len() as u64);
            Ok(())
        }))
    }
}

/// In the same directory, under a name that nobody else has.
pub(crate) fn temporary(path: &RelPath) -> FsResult<RelPath> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(errno)?;
    let name = format!(".longhaul-{:016x}.put", u64::from_ne_bytes(random));
    within(path.parent().as_ref(), name.as_bytes())
}

impl Begun {
    /// For those who may have this.
    fn permit(&self, like: &Meta) -> FsResult<()> {
        let permissions = Permissions::from_mode(like.permissions());
        let set = self.file.set_permissions(permissions);
        set.map_err(io)
    }

    /// Those of the file that it replaces: they are not of its contents. What the site can't read it can't keep.
    fn keep_attributes(&self) -> FsResult<()> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        match self.root.open_with(&self.path, flags, Mode::empty()) {
            Ok(replaced) => attributes::copy(replaced, &self.file),
            Err(_) => Ok(()),
        }
    }

    /// It is all there, and survives a power loss under its name.
    fn commit(&self) -> FsResult<()> {
        let length = self.file.metadata().map_err(io)?.len();
        if self.size.is_some_and(|size| size != length) {
            return Err(FsError::GeneralFailure);
        }
        self.file.sync_all().map_err(io)?;
        let named = self.root.rename(&self.temporary, &self.path);
        named.map_err(failed)?;
        self.changes.count_entry();
        let around = self.root.open_dir(self.path.parent().as_ref());
        let around = around.map_err(failed)?;
        rustix::fs::fsync(around).map_err(errno)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Under its final name it is gone from here.
        let _ = self.root.remove(&self.temporary);
    }
}

impl DavFile for Upload {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let begun = self.0.clone();
        Box::pin(blocking(move || {
            let stat = rustix::fs::fstat(&begun.file).map_err(errno)?;
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
        let begun = self.0.clone();
        Box::pin(blocking(move || begun.commit()))
    }

    fn read_bytes(&mut self, _count: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn seek(&mut self, _position: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(async { Err(FsError::Forbidden) })
    }
}
