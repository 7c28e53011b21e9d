// SPDX-License-Identifier: MIT OR Apache-2.0
//! View of an export for WebDAV: regular files and directories below its directory. Symbolic links are neither listed
//! nor followed, and files of copies in progress are hidden.

use super::meta::{Meta, names, optional, within};
use crate::http::{
    access::Access,
    audit::ChangeCounter,
    budget::Use,
    locks::LockStore,
    request::target::{escape_path, url_path},
    response::{Outcome, Rejection},
};
use longhaul_store::{
    path::{RelPath, is_internal_name},
    root::{Names, Root},
};
use rustix::fs::{Mode, OFlags};
use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// Export, opened for one request.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) root: Arc<Root>,
    pub(crate) access: Arc<Access>,
    pub(crate) locks: LockStore,
    pub(crate) changes: ChangeCounter,
}

impl Files {
    /// Opens an export and inspects it on a blocking thread. Returns `None` if that fails or takes longer than `limit`.
    /// An export may be on a host that does not respond, which must not block the others.
    pub(crate) async fn open<T: Send + 'static>(
        access: Access,
        changes: ChangeCounter,
        limit: Duration,
        inspect: impl FnOnce(Self) -> T + Send + 'static,
    ) -> Option<T> {
        let opened = async {
            let opens = access.budget.acquire(Use::Open, &access.export, 1);
            let permit = opens.await?;
            let opened = tokio::task::spawn_blocking(move || {
                // The permit is held while the thread runs, even if the request has timed out.
                let _permit = permit;
                Self::of(access, changes).map(inspect).ok()
            });
            opened.await.ok()?
        };
        timeout(limit, opened).await.ok()?
    }

    /// Opens the export for one request, since its directory may have been mounted meanwhile. A symbolic link in its
    /// place is not followed.
    fn of(access: Access, changes: ChangeCounter) -> io::Result<Self> {
        let root = Root::open_without_links(&access.directory)?;
        let device = Meta::stat(&root, None).map_or(0, |meta| meta.identity().0);
        Ok(Self {
            root: Arc::new(root),
            locks: LockStore::new(&access.config.state, device),
            access: Arc::new(access),
            changes,
        })
    }

    /// Returns the metadata of a path that clients may see. `None` is the export itself.
    pub(crate) fn visible(&self, path: Option<&RelPath>) -> Outcome<Meta> {
        if path.is_some_and(RelPath::is_internal) {
            return Err(Rejection(404, "not found"));
        }
        Meta::visible(&self.root, path)
    }

    pub(crate) fn exists(&self, path: Option<&RelPath>) -> bool {
        Meta::visible(&self.root, path).is_ok()
    }

    /// Opens a regular file or a directory to access its attributes.
    pub(crate) fn open_any(&self, path: Option<&RelPath>) -> Outcome<OwnedFd> {
        Ok(match path.filter(|path| !self.root.is_dir(path)) {
            None => self.root.open_dir(path)?,
            Some(file) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                self.root.open_with(file, flags, Mode::empty())?.into()
            }
        })
    }

    /// Returns the URL path of a resource. A directory's ends with a slash.
    pub(crate) fn href(&self, path: Option<&RelPath>, meta: &Meta) -> String {
        let url = url_path(&self.access.export, path);
        if meta.is_dir() && !url.ends_with('/') {
            url + "/"
        } else {
            url
        }
    }

    /// Returns a path of the export in the form that locks use: absolute, escaped, without a slash at its end.
    pub(crate) fn lock_path(&self, path: Option<&RelPath>) -> String {
        let top = escape_path(self.access.directory.as_os_str().as_bytes());
        let top = top.trim_end_matches('/');
        match path {
            Some(path) => format!("{top}/{}", escape_path(path.as_bytes())),
            None => top.to_owned(),
        }
    }
}

/// Visible entries of a directory: the names, whose metadata is read when it is needed. Memory: some 30 bytes for each.
#[derive(Debug, Clone)]
pub(crate) struct Entries {
    root: Arc<Root>,
    directory: Option<RelPath>,
    names: Arc<Names>,
    /// Index of the next name.
    next: usize,
}

impl Entries {
    /// Returns the entries, with their number.
    ///
    /// # Errors
    /// Some entry can't be read, there are too many, or a path is too long. A partial list would silently omit entries.
    pub(crate) fn of(files: &Files, directory: Option<&RelPath>) -> Outcome<(Self, usize)> {
        let entries = Self {
            root: files.root.clone(),
            directory: directory.cloned(),
            names: Arc::new(names(&files.root, directory)?),
            next: 0,
        };
        let count = |count, entry: Outcome<_>| entry.map(|_| count + 1);
        let count = entries.clone().try_fold(0, count)?;
        Ok((entries, count))
    }

    /// Returns an entry. `None` if it is hidden, or was removed meanwhile.
    fn entry(&self, name: &[u8]) -> Outcome<Option<(RelPath, Meta)>> {
        if is_internal_name(name) {
            return Ok(None);
        }
        let path = within(self.directory.as_ref(), name);
        let path = path.map_err(|_| Rejection(507, "paths in it are too long"))?;
        let meta = optional(Meta::visible(&self.root, Some(&path)))?;
        Ok(meta.map(|meta| (path, meta)))
    }
}

impl Iterator for Entries {
    type Item = Outcome<(RelPath, Meta)>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(name) = self.names.get(self.next) {
            self.next += 1;
            if let Some(entry) = self.entry(name).transpose() {
                return Some(entry);
            }
        }
        None
    }
}
