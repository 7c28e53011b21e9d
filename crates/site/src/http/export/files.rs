// SPDX-License-Identifier: MIT OR Apache-2.0
//! An export as WebDAV sees it: plain files and directories beneath its directory. Symbolic links are neither shown nor
//! followed, and files of copies under way are not there.

use super::{
    attributes,
    download::Download,
    guard::Guard,
    meta::{Meta, blocking, failed, names, rel_path, within},
    tree,
    upload::Upload,
};
use crate::{
    exports::lies_in,
    http::{access::Access, audit::Changes},
};
use dav_server::{
    davpath::DavPath,
    fs::{
        DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream,
        OpenOptions, ReadDirMeta,
    },
};
use futures_util::stream;
use longhaul_store::{
    path::{INTERNAL_PREFIX, RelPath},
    root::Root,
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

/// Entries of a directory that are shown, at most; each costs some 300 bytes. A larger one can't be listed.
pub(in crate::http) const ENTRIES_MAX: usize = 100_000;

/// An export for one request.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) root: Arc<Root>,
    pub(in crate::http) access: Arc<Access>,
    /// A name of our own that this request may use, and what is below it.
    staged: Option<RelPath>,
    /// Of a COPY: where from, and where to.
    copied: Option<(RelPath, RelPath)>,
    /// What is in the directory that this request is about, for the library to ask for once.
    listed: Arc<Mutex<Option<Entries>>>,
    pub(in crate::http) changes: Changes,
    pub(in crate::http) guard: Guard,
}

impl Files {
    /// Opened for each request: the directory may have been mounted meanwhile. A link that is there now is not followed.
    pub(in crate::http) fn of(access: Access, changes: Changes) -> std::io::Result<Self> {
        let root = Root::open_without_links(&access.directory)?;
        let device = Meta::any(&root, None).map_or(0, |meta| meta.identity().0);
        let locks = access.locks.clone().at_device(device);
        Ok(Self {
            root: Arc::new(root),
            access: Arc::new(Access { locks, ..access }),
            staged: None,
            copied: None,
            listed: Arc::default(),
            changes,
            guard: Guard::default(),
        })
    }

    /// What is known of what is shown at a path; none is the export.
    pub(crate) fn look(&self, path: Option<RelPath>) -> FsFuture<'static, Meta> {
        self.act(move |root| Meta::shown(root, path.as_ref()))
    }

    /// Whether something is shown at a path.
    pub(crate) fn is_there(&self, path: Option<&RelPath>) -> bool {
        Meta::shown(&self.root, path).is_ok()
    }

    /// Makes a file with nothing in it; whether it was not there.
    pub(crate) fn make_empty(&self, path: &RelPath) -> FsResult<bool> {
        let upload = begin_new(&self.root, path.clone(), &self.changes);
        match upload.and_then(Upload::finish) {
            // Meanwhile it is.
            Err(_) if self.is_there(Some(path)) => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// A file or a directory, opened for what is kept beside its contents.
    pub(crate) fn open_any(&self, path: Option<&RelPath>) -> FsResult<OwnedFd> {
        open_any(&self.root, path)
    }

    /// Where something of the export is on this machine.
    pub(crate) fn place(&self, path: &RelPath) -> PathBuf {
        self.access
            .directory
            .join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Whether something is another export, or has one in it: that stays where it is.
    pub(crate) fn holds_export(&self, path: &RelPath) -> bool {
        let place = self.place(path);
        let mut others = self.access.others.iter();
        others.any(|other| lies_in(other, &place))
    }

    /// For a request whose changes are checked when they are made.
    pub(in crate::http) fn guarded(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// For a request that makes something under this name first.
    pub(crate) fn staging(mut self, name: &RelPath) -> Self {
        self.staged = Some(name.clone());
        self
    }

    /// For a COPY: directories that it makes are for those who may use the ones that they are made from.
    pub(crate) fn copying(mut self, from: &RelPath, to: &RelPath) -> Self {
        self.copied = Some((from.clone(), to.clone()));
        self
    }

    /// What a directory that is made is a copy of.
    fn original(&self, made: &RelPath) -> Option<RelPath> {
        let (from, to) = self.copied.as_ref()?;
        match made == to {
            true => Some(from.clone()),
            false => from.join(made.strip_prefix(to)?.as_bytes()).ok(),
        }
    }

    /// For a request about a directory with this in it.
    pub(crate) fn listing(mut self, entries: Entries) -> Self {
        self.listed = Arc::new(Mutex::new(Some(entries)));
        self
    }

    /// The path below the export; none is the export.
    fn inside(&self, path: &DavPath) -> FsResult<Option<RelPath>> {
        let Some(path) = rel_path(path.as_bytes()).map_err(|_| FsError::NotFound)? else {
            return Ok(None);
        };
        let staged = self.staged.as_ref();
        let is_staged = staged.is_some_and(|top| path == *top || path.strip_prefix(top).is_some());
        match path.is_internal() && !is_staged {
            true => Err(FsError::NotFound),
            false => Ok(Some(path)),
        }
    }

    /// Something below the export.
    fn below(&self, path: &DavPath) -> FsResult<RelPath> {
        self.inside(path)?.ok_or(FsError::Forbidden)
    }

    /// Does something that may wait for a disk.
    fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Arc<Root>) -> FsResult<T> + Send + 'static,
    ) -> FsFuture<'static, T> {
        let root = self.root.clone();
        Box::pin(blocking(move || act(&root)))
    }

    /// The same, which changes something.
    fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Arc<Root>, &Changes) -> FsResult<T> + Send + 'static,
    ) -> FsFuture<'static, T> {
        let changes = self.changes.clone();
        match self.access.writable {
            true => self.act(move |root| act(root, &changes)),
            false => Box::pin(async { Err(FsError::Forbidden) }),
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone)]
struct Entry {
    name: Vec<u8>,
    meta: Meta,
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

/// What is in a directory.
#[derive(Debug)]
pub(crate) struct Entries(Vec<Entry>);

impl Entries {
    /// What is shown of it.
    ///
    /// # Errors
    /// As [`entries`].
    pub(crate) fn of(root: &Root, path: Option<&RelPath>) -> FsResult<Self> {
        entries(root, path, false).map(Self)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Each name, and what is known of it.
    pub(crate) fn into_names(self) -> impl Iterator<Item = (Vec<u8>, Meta)> + Send {
        self.0.into_iter().map(|entry| (entry.name, entry.meta))
    }
}

/// `all`: also what is not shown, to copy or remove it; never files of a copy under way.
///
/// # Errors
/// Not everything in it can be looked at, it is too much, or paths in it are too long. What is left out would be missing
/// without a word.
fn entries(root: &Root, path: Option<&RelPath>, all: bool) -> FsResult<Vec<Entry>> {
    let names = names(root, path)?;
    let look = match all {
        true => Meta::any,
        false => Meta::shown,
    };
    let entry = |name: &[u8]| {
        let meta = match look(root, Some(&within(path, name)?)) {
            // It is not shown, or gone meanwhile.
            Err(FsError::NotFound) => return Ok(None),
            meta => meta?,
        };
        let name = name.to_vec();
        Ok(Some(Entry { name, meta }))
    };
    let names = || {
        names
            .iter()
            .filter(|name| !name.starts_with(INTERNAL_PREFIX))
    };
    match names().count() > ENTRIES_MAX {
        true => Err(FsError::TooLarge),
        false => names().filter_map(|name| entry(name).transpose()).collect(),
    }
}

/// Makes a directory like this one, with its attributes and for those who may use it; its owner may always write, for it is
/// filled yet.
fn liken(root: &Root, path: &RelPath, original: &RelPath) -> FsResult<()> {
    let opened = root.open_dir(Some(path)).map_err(failed)?;
    let original = root.metadata(original).map_err(failed)?;
    attributes::copy(original, opened, 0o700)
}

/// A file that replaces nothing.
fn begin_new(root: &Arc<Root>, path: RelPath, changes: &Changes) -> FsResult<Upload> {
    let options = OpenOptions {
        create_new: true,
        ..OpenOptions::default()
    };
    Upload::begin(root, path, &options, changes, Guard::default())
}

/// A plain file or a directory.
fn open_any(root: &Root, path: Option<&RelPath>) -> FsResult<OwnedFd> {
    match path.filter(|path| !root.is_dir(path)) {
        None => root.open_dir(path).map_err(failed),
        Some(file) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let opened = root.open_with(file, flags, Mode::empty());
            opened.map(OwnedFd::from).map_err(failed)
        }
    }
}

/// The record of a copy into it does not keep a directory from being removed, nor does what an upload has left.
fn remove_dir(root: &Root, path: &RelPath) -> FsResult<()> {
    match root.remove_dir(path) {
        Err(failure) if failure.errno() == Some(Errno::NOTEMPTY) => {}
        other => return other.map_err(failed),
    }
    let (names, _) = root.list(Some(path)).map_err(failed)?;
    let paths: Option<Vec<_>> = names.iter().map(|name| path.join(name).ok()).collect();
    let left = paths.filter(|all| all.iter().all(|path| tree::is_orphaned(root, path)));
    for path in left.unwrap_or_default() {
        tree::remove(root, &path, &Changes::default())?;
    }
    root.remove_dir(path).map_err(failed)
}

impl DavFileSystem for Files {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        let path = match self.below(path) {
            Ok(path) => path,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let guard = self.guard.clone();
        match options.write {
            true => self.change(move |root, changes| {
                Ok(Box::new(Upload::begin(root, path, &options, changes, guard)?) as _)
            }),
            false => self.act(move |root| Ok(Box::new(Download::open(root, &path)?) as _)),
        }
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        let path = self.inside(path);
        let all = matches!(meta, ReadDirMeta::DataSymlink);
        let listed = self.listed.lock().take();
        self.act(move |root| {
            let found = match listed {
                Some(Entries(found)) => found,
                None => entries(root, path?.as_ref(), all)?,
            };
            let boxed = |entry: Entry| Ok(Box::new(entry) as Box<dyn DavDirEntry>);
            Ok(Box::pin(stream::iter(found.into_iter().map(boxed))) as _)
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        let path = self.inside(path);
        self.act(move |root| Ok(Box::new(Meta::shown(root, path?.as_ref())?) as _))
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let path = self.below(path);
        let original = path.as_ref().ok().and_then(|path| self.original(path));
        let guard = self.guard.clone();
        self.change(move |root, changes| {
            let path = path?;
            guard.step(|| root.make_dir_with_umask(&path).map_err(failed))?;
            changes.count_entry();
            match original {
                Some(original) => liken(root, &path, &original),
                None => Ok(()),
            }
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let path = self.below(path);
        self.change(move |root, changes| {
            remove_dir(root, &path?)?;
            changes.count_entry();
            Ok(())
        })
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        let (path, guard) = (self.below(path), self.guard.clone());
        self.change(move |root, changes| {
            let path = path?;
            guard.step(|| tree::remove_file(root, &path, changes))
        })
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        let (from, to) = (self.below(from), self.below(to));
        self.change(move |root, changes| begin_new(root, to?, changes)?.fill(root, &from?))
    }
}
