// SPDX-License-Identifier: MIT OR Apache-2.0
//! View of an export for WebDAV: regular files and directories below its directory. Symbolic links are neither listed
//! nor followed, and files of copies in progress are hidden.

use super::{
    attributes,
    download::Download,
    guard::Guard,
    meta::{Meta, blocking, from_failure, names, rel_path, within},
    terms::Terms,
    tree,
    upload::Upload,
};
use crate::{
    exports::is_within,
    http::{access::Access, audit::ChangeCounter},
};
use dav_server::{
    davpath::DavPath,
    fs::{
        DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream,
        OpenOptions, ReadDirMeta,
    },
};
use futures_util::{StreamExt as _, stream};
use longhaul_store::{
    path::{RelPath, is_internal_name},
    root::{Names, Root},
};
use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    sync::Arc,
};

/// Export, opened for one request.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) root: Arc<Root>,
    pub(in crate::http) access: Arc<Access>,
    /// Internal name that this request may use, with everything below it.
    staged: Option<RelPath>,
    /// Source and destination of a COPY.
    copy_paths: Option<(RelPath, RelPath)>,
    /// Contents of the directory of this request, for dav-server to take once.
    cached_listing: Arc<Mutex<Option<Entries>>>,
    pub(in crate::http) changes: ChangeCounter,
    pub(in crate::http) guard: Guard,
    /// Terms of a PUT.
    terms: Terms,
}

impl Files {
    /// Opens the export for one request, since its directory may have been mounted meanwhile. A symbolic link in its
    /// place is not followed.
    pub(in crate::http) fn of(access: Access, changes: ChangeCounter) -> std::io::Result<Self> {
        let root = Root::open_without_links(&access.directory)?;
        let device = Meta::stat(&root, None).map_or(0, |meta| meta.identity().0);
        let locks = access.locks.clone().at_device(device);
        Ok(Self {
            root: Arc::new(root),
            access: Arc::new(Access { locks, ..access }),
            staged: None,
            copy_paths: None,
            cached_listing: Arc::default(),
            changes,
            guard: Guard::default(),
            terms: Terms::default(),
        })
    }

    /// Returns the metadata of a visible path. `None` is the export itself.
    pub(crate) fn stat(&self, path: Option<RelPath>) -> FsFuture<'static, Meta> {
        self.run_blocking(move |root| Meta::visible(root, path.as_ref()))
    }

    /// Returns whether a path is visible.
    pub(crate) fn exists(&self, path: Option<&RelPath>) -> bool {
        Meta::visible(&self.root, path).is_ok()
    }

    /// Creates an empty file. Returns whether it did not exist before.
    pub(crate) fn make_empty(&self, path: &RelPath) -> FsResult<bool> {
        let upload = begin_new(&self.root, path.clone(), &self.changes);
        match upload.and_then(Upload::finish) {
            // Another request has created it meanwhile.
            Err(_) if self.exists(Some(path)) => Ok(false),
            created => created.map(|()| true),
        }
    }

    /// Opens a file or a directory to access its attributes.
    pub(crate) fn open_any(&self, path: Option<&RelPath>) -> FsResult<OwnedFd> {
        open_any(&self.root, path)
    }

    /// Returns the absolute path of an entry on this machine.
    pub(crate) fn absolute_path(&self, path: &RelPath) -> PathBuf {
        self.access
            .directory
            .join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Returns whether a path is another export or contains one. Such a path must stay in place.
    pub(crate) fn contains_export(&self, path: &RelPath) -> bool {
        let absolute_path = self.absolute_path(path);
        let mut others = self.access.other_exports.iter();
        others.any(|other| is_within(other, &absolute_path))
    }

    /// Sets the guard that checks each change when it is made.
    pub(in crate::http) fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the terms of a PUT.
    pub(in crate::http) fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// Allows the request to use this internal name.
    pub(crate) fn with_staging(mut self, name: &RelPath) -> Self {
        self.staged = Some(name.clone());
        self
    }

    /// Sets the source and the destination of a COPY. Directories that it creates get the rights of those that they
    /// are copied from.
    pub(crate) fn with_copy(mut self, from: &RelPath, to: &RelPath) -> Self {
        self.copy_paths = Some((from.clone(), to.clone()));
        self
    }

    /// Returns the path that a new directory is a copy of.
    fn copy_source(&self, created: &RelPath) -> Option<RelPath> {
        let (from, to) = self.copy_paths.as_ref()?;
        if created == to {
            Some(from.clone())
        } else {
            from.join(created.strip_prefix(to)?.as_bytes()).ok()
        }
    }

    /// Sets the contents of the request's directory.
    pub(crate) fn with_listing(mut self, entries: Entries) -> Self {
        self.cached_listing = Arc::new(Mutex::new(Some(entries)));
        self
    }

    /// Returns the path below the export. `None` is the export itself.
    fn resolve(&self, path: &DavPath) -> FsResult<Option<RelPath>> {
        let Some(path) = rel_path(path.as_bytes()).map_err(|_| FsError::NotFound)? else {
            return Ok(None);
        };
        let staged = self.staged.as_ref();
        let is_staged = staged.is_some_and(|top| path == *top || path.strip_prefix(top).is_some());
        if path.is_internal() && !is_staged {
            Err(FsError::NotFound)
        } else {
            Ok(Some(path))
        }
    }

    /// Returns the path below the export; an error for the export itself.
    fn resolve_below(&self, path: &DavPath) -> FsResult<RelPath> {
        self.resolve(path)?.ok_or(FsError::Forbidden)
    }

    /// Runs an operation that may wait for a disk.
    fn run_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Arc<Root>) -> FsResult<T> + Send + 'static,
    ) -> FsFuture<'static, T> {
        let root = self.root.clone();
        Box::pin(blocking(move || operation(&root)))
    }

    /// Runs an operation that changes something, if the export is writable.
    fn run_change<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Arc<Root>, &ChangeCounter) -> FsResult<T> + Send + 'static,
    ) -> FsFuture<'static, T> {
        let changes = self.changes.clone();
        if self.access.writable {
            self.run_blocking(move |root| operation(root, &changes))
        } else {
            Box::pin(async { Err(FsError::Forbidden) })
        }
    }
}

/// Entries whose metadata is read at once.
const BATCH: usize = 128;

/// Entry of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) meta: Meta,
}

impl DavDirEntry for Entry {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let meta = self.meta;
        Box::pin(async move { Ok(Box::new(meta) as Box<dyn DavMetaData>) })
    }
}

/// Contents of a directory: the names, whose metadata is read when it is needed. Memory: some 30 bytes for each.
#[derive(Debug)]
pub(crate) struct Entries {
    root: Arc<Root>,
    directory: Option<RelPath>,
    names: Names,
    /// Whether hidden entries are included, in order to copy or remove them. Files of a copy in progress never are.
    all: bool,
    /// Index of the next name.
    next: usize,
}

impl Entries {
    /// Returns the visible entries, with their number.
    ///
    /// # Errors
    /// Some entry can't be read, there are too many, or a path is too long. A partial list would silently omit entries.
    pub(crate) fn of(root: &Arc<Root>, directory: Option<&RelPath>) -> FsResult<(Self, usize)> {
        let mut entries = Self::unchecked(root, directory, false)?;
        let count = entries
            .by_ref()
            .try_fold(0, |count, entry| entry.map(|_| count + 1))?;
        entries.next = 0;
        Ok((entries, count))
    }

    fn unchecked(root: &Arc<Root>, directory: Option<&RelPath>, all: bool) -> FsResult<Self> {
        Ok(Self {
            root: root.clone(),
            directory: directory.cloned(),
            names: names(root, directory)?,
            all,
            next: 0,
        })
    }

    /// Reads the metadata of an entry. `None` if it is hidden, or was removed meanwhile.
    fn entry(&self, name: &[u8]) -> FsResult<Option<Entry>> {
        let stat = if self.all { Meta::stat } else { Meta::visible };
        let name = name.to_vec();
        match stat(&self.root, Some(&within(self.directory.as_ref(), &name)?)) {
            Ok(meta) => Ok(Some(Entry { name, meta })),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a stream for dav-server, which reads the metadata on threads that may wait for a disk.
    fn into_stream(self) -> FsStream<Box<dyn DavDirEntry>> {
        let batches = stream::unfold(self, |mut entries| async move {
            let read = tokio::task::spawn_blocking(move || {
                let batch: Vec<_> = entries.by_ref().take(BATCH).collect();
                (batch, entries)
            });
            let (batch, entries) = read.await.ok()?;
            (!batch.is_empty()).then_some((batch, entries))
        });
        let boxed = |entry: Entry| Box::new(entry) as Box<dyn DavDirEntry>;
        let entries = batches.flat_map(stream::iter);
        Box::pin(entries.map(move |entry| entry.map(boxed)))
    }
}

impl Iterator for Entries {
    type Item = FsResult<Entry>;

    fn next(&mut self) -> Option<FsResult<Entry>> {
        while let Some(name) = self.names.get(self.next) {
            self.next += 1;
            if is_internal_name(name) {
                continue;
            }
            if let Some(entry) = self.entry(name).transpose() {
                return Some(entry);
            }
        }
        None
    }
}

/// Copies the attributes and rights of a directory to a new one. Its owner may always write, because it is still to
/// be filled.
fn copy_dir_attributes(root: &Root, path: &RelPath, original: &RelPath) -> FsResult<()> {
    let opened = root.open_dir(Some(path)).map_err(from_failure)?;
    let original = root.metadata(original).map_err(from_failure)?;
    attributes::copy(original, opened, 0o700)
}

/// Creates a file that must not exist yet.
fn begin_new(root: &Arc<Root>, path: RelPath, changes: &ChangeCounter) -> FsResult<Upload> {
    let options = OpenOptions {
        create_new: true,
        ..OpenOptions::default()
    };
    let none = (Guard::default(), Terms::default());
    Upload::begin(root, path, &options, changes, none)
}

/// Opens a regular file or a directory.
fn open_any(root: &Root, path: Option<&RelPath>) -> FsResult<OwnedFd> {
    match path.filter(|path| !root.is_dir(path)) {
        None => root.open_dir(path).map_err(from_failure),
        Some(file) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let opened = root.open_with(file, flags, Mode::empty());
            opened.map(OwnedFd::from).map_err(from_failure)
        }
    }
}

/// Removes a directory, even if it still contains the manifest of a copy into it or a file of an interrupted upload.
fn remove_dir(root: &Root, path: &RelPath) -> FsResult<()> {
    match root.remove_dir(path) {
        Err(failure) if failure.errno() == Some(Errno::NOTEMPTY) => {}
        other => return other.map_err(from_failure),
    }
    let (names, _) = root.list(Some(path)).map_err(from_failure)?;
    let paths: Option<Vec<_>> = names.iter().map(|name| path.join(name).ok()).collect();
    let left = paths.filter(|all| all.iter().all(|path| tree::is_orphaned(root, path)));
    for path in left.unwrap_or_default() {
        tree::remove(root, &path, &ChangeCounter::default())?;
    }
    root.remove_dir(path).map_err(from_failure)
}

impl DavFileSystem for Files {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        let path = match self.resolve_below(path) {
            Ok(path) => path,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let conditions = (self.guard.clone(), self.terms.clone());
        if options.write {
            self.run_change(move |root, changes| {
                Ok(Box::new(Upload::begin(root, path, &options, changes, conditions)?) as _)
            })
        } else {
            self.run_blocking(move |root| Ok(Box::new(Download::open(root, &path)?) as _))
        }
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        let path = self.resolve(path);
        let all = matches!(meta, ReadDirMeta::DataSymlink);
        let cached_listing = self.cached_listing.lock().take();
        self.run_blocking(move |root| {
            let entries = match cached_listing {
                Some(entries) => entries,
                None => Entries::unchecked(root, path?.as_ref(), all)?,
            };
            Ok(entries.into_stream())
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        let path = self.resolve(path);
        self.run_blocking(move |root| Ok(Box::new(Meta::visible(root, path?.as_ref())?) as _))
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let path = self.resolve_below(path);
        let original = path.as_ref().ok().and_then(|path| self.copy_source(path));
        let guard = self.guard.clone();
        self.run_change(move |root, changes| {
            let path = path?;
            guard.step(|| root.make_dir_with_umask(&path).map_err(from_failure))?;
            changes.count_entry();
            match original {
                Some(original) => copy_dir_attributes(root, &path, &original),
                None => Ok(()),
            }
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let path = self.resolve_below(path);
        self.run_change(move |root, changes| {
            remove_dir(root, &path?)?;
            changes.count_entry();
            Ok(())
        })
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let (path, guard) = (self.resolve_below(path), self.guard.clone());
        self.run_change(move |root, changes| {
            let path = path?;
            guard.step(|| tree::remove_file(root, &path, changes))
        })
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        let (from, to) = (self.resolve_below(from), self.resolve_below(to));
        self.run_change(move |root, changes| begin_new(root, to?, changes)?.copy_from(root, &from?))
    }
}
