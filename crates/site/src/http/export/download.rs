// SPDX-License-Identifier: MIT OR Apache-2.0
//! File opened for a GET.

use super::meta::{Meta, blocking, errno, from_failure, from_io_error};
use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult};
use longhaul_store::{path::RelPath, root::Root};
use std::{fs::File, io::SeekFrom, os::unix::fs::FileExt, sync::Arc};

/// Bytes read at once.
pub(crate) const READ_LEN: usize = 128 << 10;

/// Open file and its read position.
#[derive(Debug)]
pub(crate) struct Download {
    file: Arc<File>,
    meta: Meta,
    at: u64,
}

impl Download {
    /// Opens a regular file. Refuses any other kind.
    pub(crate) fn open(root: &Root, path: &RelPath) -> FsResult<Self> {
        // The kind is checked first, since opening a device may have an effect.
        Meta::visible(root, Some(path))?;
        let file = root.open_file(path).map_err(from_failure)?;
        let stat = rustix::fs::fstat(&file).map_err(errno)?;
        let meta = Meta::of(stat);
        if meta.is_file() {
            Ok(Self {
                file: Arc::new(file),
                meta,
                at: 0,
            })
        } else {
            Err(FsError::Forbidden)
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Metadata when the file was opened.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Metadata now.
    pub(crate) fn current_meta(&self) -> FsResult<Meta> {
        rustix::fs::fstat(&self.file).map(Meta::of).map_err(errno)
    }
}

impl DavFile for Download {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let meta = self.meta;
        Box::pin(async move { Ok(Box::new(meta) as _) })
    }

    /// Returns the next bytes. A file that has become shorter is an error, so that no client receives bytes that
    /// never existed.
    fn read_bytes(&mut self, count: usize) -> FsFuture<'_, Bytes> {
        let (file, at) = (self.file.clone(), self.at);
        Box::pin(async move {
            let read = blocking(move || {
                let mut bytes = vec![0; count.min(READ_LEN)];
                let read = file.read_at(&mut bytes, at).map_err(from_io_error)?;
                bytes.truncate(read);
                match read {
                    0 => Err(FsError::GeneralFailure),
                    _ => Ok(Bytes::from(bytes)),
                }
            });
            let bytes = read.await?;
            self.at += bytes.len() as u64;
            Ok(bytes)
        })
    }

    fn seek(&mut self, position: SeekFrom) -> FsFuture<'_, u64> {
        let at = match position {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.meta.len().checked_add_signed(by),
        };
        Box::pin(async move {
            self.at = at.ok_or(FsError::GeneralFailure)?;
            Ok(self.at)
        })
    }

    fn write_buf(&mut self, _bytes: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn write_bytes(&mut self, _bytes: Bytes) -> FsFuture<'_, ()> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
