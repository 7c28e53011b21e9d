// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deletion (`--delete`) of entries at the destination that the source does not have.
//!
//! While a tree is copied, the extra entries of each finished directory are recorded. They are
//! removed at the end, and only if the whole source was read. Some entries are never touched: those
//! outside of copied directories, those that a pattern excludes, and internal files. Pieces of
//! extra files are removed, although they are internal files ([`crate::piece`]): they are what this
//! host has of the file. So are [`abandoned_parts`] of extra files.
//!
//! Many file systems ignore case, or normalise Unicode. There an entry of the source may be present under another name
//! than the source's. It is the source's entry that would be lost, so it gets the source's name instead.

use crate::{
    entry::{Entry, Kind},
    path::{RelPath, is_internal_name},
    piece::{self, PieceFileNames},
    root::{Failure, Names, Root},
    tree::{
        abandoned_parts::{self, AbandonedParts},
        filter::{Filter, Verdict},
        same_names::folded,
        scan::ScanEnd,
    },
};
use rustix::{
    fd::AsFd,
    fs::{FileType, Stat},
    io::Errno,
};
use std::collections::{BTreeSet, HashSet};

/// Reason why nothing is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeletionRefused {
    /// Entries missing from the scan may exist at the source.
    #[error(
        "nothing is deleted, because not all entries at the source could be read (errors: {0})"
    )]
    Failures(u64),
    /// The scan did not reach its end.
    #[error("nothing is deleted, because the source was not read to its end")]
    Unfinished,
}

/// Finds extra entries at the destination, from entries in the order of a scan. Keeps the names in
/// the directories on the current path, and the paths of the extra entries.
#[derive(Debug)]
pub struct DeletionPlan<'a> {
    root: &'a Root,
    filter: &'a Filter,
    frames: Vec<Frame>,
    top: Frame,
    /// The root itself is a copied directory.
    top_copied: bool,
    extras: TreeDifference,
    /// Entries that stay with all their contents.
    kept_trees: Vec<RelPath>,
}

/// How copied directories at the destination differ from the source.
#[derive(Debug, Default)]
pub struct TreeDifference {
    /// Entries that the source does not have. A directory stands for its contents.
    pub found: BTreeSet<RelPath>,
    /// Entries that the file system takes for ones of the source, with the paths that these have.
    pub renamed: Vec<(RelPath, RelPath)>,
    /// Parts that interrupted copies left of files that the source does not have. None with patterns, as the files' names are unknown.
    pub abandoned: Vec<AbandonedParts>,
    /// Number of entries of the source.
    pub source_entries: u64,
    /// Number of entries that source and destination have.
    pub common: u64,
    /// Errors at the destination.
    pub failures: Vec<Failure>,
}

/// Names that the source has in a directory.
#[derive(Debug, Default)]
struct Frame {
    path: Option<RelPath>,
    names: HashSet<Box<[u8]>>,
    /// The contents were not scanned.
    contents_unscanned: bool,
}

impl<'a> DeletionPlan<'a> {
    /// Plan for a copy into `root` of the entries that `filter` includes.
    #[must_use]
    pub fn new(root: &'a Root, filter: &'a Filter) -> Self {
        Self {
            root,
            filter,
            frames: Vec::new(),
            top: Frame::default(),
            top_copied: false,
            extras: TreeDifference::default(),
            kept_trees: Vec::new(),
        }
    }

    /// Records that the contents of a source are copied into the root itself.
    pub fn set_contents_copied(&mut self) {
        self.top_copied = true;
    }

    /// Records an entry of the source.
    pub fn add_entry(&mut self, entry: &Entry) {
        self.add(&entry.path, entry.kind == Kind::Directory);
    }

    /// Records an entry of the source by its path.
    pub fn add(&mut self, path: &RelPath, is_directory: bool) {
        self.record_name(path);
        self.extras.source_entries += 1;
        if is_directory {
            self.frames.push(Frame {
                path: Some(path.clone()),
                ..Frame::default()
            });
        }
    }

    /// Records that nothing at or below `path` is deleted, whatever the source has there.
    pub fn keep_tree(&mut self, path: RelPath) {
        self.kept_trees.push(path);
    }

    /// Records an entry that the source has but does not copy, or whose contents it does not copy.
    /// It is not deleted either.
    pub fn protect(&mut self, path: &RelPath) {
        let last = self.frames.last_mut();
        match last.filter(|frame| frame.path.as_ref() == Some(path)) {
            Some(frame) => frame.contents_unscanned = true,
            None => self.record_name(path),
        }
    }

    fn record_name(&mut self, path: &RelPath) {
        let dir = path.parent();
        while self
            .frames
            .last()
            .is_some_and(|frame| !frame.is_for(dir.as_ref()))
        {
            self.finish_directory();
        }
        let frame = self.frames.last_mut().unwrap_or(&mut self.top);
        frame.names.insert(path.name().into());
    }

    /// Compares the directory that the scan has finished.
    fn finish_directory(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.compare(&frame);
        }
    }

    fn compare(&mut self, frame: &Frame) {
        match self.compare_names(frame) {
            Ok(()) => {}
            // A directory that does not exist yet has no extra entries.
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => self.extras.failures.push(failure),
        }
    }

    fn compare_names(&mut self, frame: &Frame) -> Result<(), Failure> {
        if frame.contents_unscanned {
            return Ok(());
        }
        let dir = frame.path.as_ref();
        let (names, error) = self.root.list(dir)?;
        if let Some(error) = error {
            return Err(error);
        }
        if !self.filter.has_patterns() {
            let of_others = abandoned_parts::find(dir, &names, &frame.names);
            self.extras.abandoned.extend(of_others);
        }
        let files = files_with_pieces(self.root, dir, &names)?;
        let pieces = files.iter().map(AsRef::as_ref);
        let all = names.iter().filter(|name| !is_internal_name(name));
        let (common, extra): (Vec<&[u8]>, Vec<&[u8]>) = all
            .chain(pieces)
            .partition(|name| frame.names.contains(*name));
        let mut found = Vec::new();
        for name in extra {
            found.push(path_in(dir, name)?);
        }
        found.retain(|path| !self.is_excluded(path) && !self.is_on_other_file_system(path));
        let renamed = self.renamed(frame, &names, &found)?;
        found.retain(|path| renamed.iter().all(|(old, _)| old != path));
        self.extras.common += (common.len() + renamed.len()) as u64;
        self.extras.found.extend(found);
        self.extras.renamed.extend(renamed);
        Ok(())
    }

    /// Returns those of the entries `found` that the file system takes for ones of the source.
    fn renamed(
        &self,
        frame: &Frame,
        names: &Names,
        found: &[RelPath],
    ) -> Result<Vec<(RelPath, RelPath)>, Failure> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        // A name that is not listed, and yet exists, stands for a listed one.
        let mut unlisted = Vec::new();
        for name in frame.names.iter().filter(|name| !names.contains(name)) {
            let path = path_in(frame.path.as_ref(), name)?;
            if let Ok(stat) = self.root.stat(&path) {
                unlisted.push((folded(name), (stat.st_dev, stat.st_ino), path));
            }
        }
        let source_path = |path: &RelPath| {
            let stat = self.root.stat(path).ok()?;
            let (folded, identity) = (folded(path.name()), (stat.st_dev, stat.st_ino));
            // Some FUSE file systems have an inode number for each name.
            let is_same = |of: &&(Vec<u8>, (u64, u64), RelPath)| of.0 == folded || of.1 == identity;
            unlisted.iter().find(is_same).map(|(.., path)| path.clone())
        };
        let renamed = found
            .iter()
            .filter_map(|path| Some((path.clone(), source_path(path)?)));
        Ok(renamed.collect())
    }

    /// With `-x`: whether the entry is on another file system than the copied directory.
    fn is_on_other_file_system(&self, path: &RelPath) -> bool {
        let first = path.components().next();
        let first = first.and_then(|first| RelPath::parse(first).ok());
        let copied = first.filter(|first| !self.top_copied && first != path);
        let device = |path| device(self.root, path).ok();
        self.filter.is_one_file_system() && device(Some(path)) != device(copied.as_ref())
    }

    fn is_excluded(&self, path: &RelPath) -> bool {
        is_excluded(self.root, self.filter, path)
    }

    /// Returns all differences, if the whole source was read.
    ///
    /// # Errors
    /// The source was not read to its end, or not without errors.
    pub fn finish(mut self, source: ScanEnd) -> Result<TreeDifference, DeletionRefused> {
        match source {
            ScanEnd::Complete => {}
            ScanEnd::Failures(failures) => return Err(DeletionRefused::Failures(failures)),
            ScanEnd::Unfinished => return Err(DeletionRefused::Unfinished),
        }
        while !self.frames.is_empty() {
            self.finish_directory();
        }
        if self.top_copied {
            let top = std::mem::take(&mut self.top);
            self.compare(&top);
        }
        let Self {
            mut extras,
            kept_trees,
            ..
        } = self;
        let is_kept = |path: &RelPath| {
            let mut trees = kept_trees.iter();
            trees.any(|tree| path == tree || path.strip_prefix(tree).is_some())
        };
        extras.found.retain(|path| !is_kept(path));
        extras.renamed.retain(|(path, _)| !is_kept(path));
        extras
            .abandoned
            .retain(|parts| !parts.directory().is_some_and(is_kept));
        Ok(extras)
    }
}

impl Frame {
    fn is_for(&self, dir: Option<&RelPath>) -> bool {
        self.path.as_ref() == dir
    }
}

fn path_in(dir: Option<&RelPath>, name: &[u8]) -> Result<RelPath, Failure> {
    Ok(match dir {
        Some(dir) => dir.join(name)?,
        None => RelPath::parse(name)?,
    })
}

/// Files of which a directory has pieces. Invalid piece headers are left alone.
fn files_with_pieces(
    root: &Root,
    dir: Option<&RelPath>,
    names: &Names,
) -> Result<Vec<Box<[u8]>>, Failure> {
    let dir = root.dir_fd(dir)?;
    Ok(piece::find_in_directory(dir.as_fd(), names).0)
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// Whether the entry is a directory, and whether it is on another file system than `home_device`.
fn classify(stat: &Stat, home_device: Option<u64>) -> (bool, bool) {
    let on_other_file_system = home_device.is_some_and(|home_device| home_device != stat.st_dev);
    (is_dir(stat), on_other_file_system)
}

fn device(root: &Root, path: Option<&RelPath>) -> Result<u64, Failure> {
    let stat = match path {
        Some(path) => root.stat(path)?,
        None => rustix::fs::fstat(root.dir_fd(None)?).map_err(Failure::at(None, "access"))?,
    };
    Ok(stat.st_dev)
}

/// With `-x`: device number of the file system that a removal does not leave.
fn home_device(root: &Root, filter: &Filter, path: &RelPath) -> Option<u64> {
    filter
        .is_one_file_system()
        .then(|| device(root, Some(path)).ok())?
}

fn is_excluded(root: &Root, filter: &Filter, path: &RelPath) -> bool {
    let dir = root.stat(path).is_ok_and(|stat| is_dir(&stat));
    filter.verdict_from_top(path, dir) == Verdict::Excluded
}

/// Removes `path`: a file, a piece of a file, or a directory with its contents. Call it before
/// directories get their metadata back ([`crate::tree::writer::TreeWriter::finish`]). Keeps entries
/// that a pattern excludes, internal files that belong to no piece, and with `-x` other file
/// systems. Directories that contain these stay. Returns the number of removed entries, and the
/// failures.
#[must_use]
pub fn remove_all(root: &Root, filter: &Filter, path: &RelPath) -> (u64, Vec<Failure>) {
    let parent_verdict = path.parent().map_or(Verdict::Unmatched, |dir| {
        filter.verdict_from_top(&dir, true)
    });
    let mut removal = Removal {
        root,
        filter,
        home_device: home_device(root, filter, path),
        keeps_internal: true,
        removed: 0,
        failures: Vec::new(),
    };
    // If this is not allowed, the removal reports it.
    let _ = root.make_writable(path.parent().as_ref());
    removal.remove_tree(path, parent_verdict);
    (removal.removed, removal.failures)
}

/// Removes `path` with all its contents, internal files too. Returns the failures.
#[must_use]
pub(super) fn remove_whole(root: &Root, path: &RelPath) -> Vec<Failure> {
    let mut removal = Removal {
        root,
        filter: &Filter::default(),
        home_device: None,
        keeps_internal: false,
        removed: 0,
        failures: Vec::new(),
    };
    removal.remove_tree(path, Verdict::Unmatched);
    removal.failures
}

/// Lists the entries that [`remove_all`] would remove, contents before their directory. Calls
/// `report` for each, and returns the failures.
pub fn list_removable(
    root: &Root,
    filter: &Filter,
    path: &RelPath,
    report: impl FnMut(&RelPath),
) -> Vec<Failure> {
    let parent_verdict = path.parent().map_or(Verdict::Unmatched, |dir| {
        filter.verdict_from_top(&dir, true)
    });
    let mut listing = Listing {
        root,
        filter,
        home_device: home_device(root, filter, path),
        report,
        failures: Vec::new(),
    };
    listing.list_tree(path, parent_verdict);
    listing.failures
}

struct Listing<'a, S> {
    root: &'a Root,
    filter: &'a Filter,
    home_device: Option<u64>,
    report: S,
    failures: Vec<Failure>,
}

impl<S: FnMut(&RelPath)> Listing<'_, S> {
    /// Lists an entry and its contents; returns whether all of it would be removed. Recursion is
    /// limited by the length of a path.
    fn list_tree(&mut self, path: &RelPath, parent_verdict: Verdict) -> bool {
        let removable = self
            .list_entry(path, parent_verdict)
            .unwrap_or_else(|failure| {
                self.failures.push(failure);
                false
            });
        if removable {
            (self.report)(path);
        }
        removable
    }

    fn list_entry(&mut self, path: &RelPath, parent_verdict: Verdict) -> Result<bool, Failure> {
        let (directory, on_other_file_system) = match self.root.stat(path) {
            Err(failure) if failure.is_not_found() && piece::exists(self.root, path) => {
                (false, false)
            }
            stat => classify(&stat?, self.home_device),
        };
        let verdict = match parent_verdict {
            Verdict::Excluded => parent_verdict,
            _ => self.filter.verdict(path, directory, parent_verdict),
        };
        if path.is_internal() || on_other_file_system || verdict == Verdict::Excluded {
            return Ok(false);
        }
        let mut all_removable = true;
        if directory {
            let (names, error) = self.root.list(Some(path))?;
            let files = files_with_pieces(self.root, Some(path), &names)?;
            let with_pieces = PieceFileNames::of(&files);
            let only_pieces = files.iter().map(AsRef::as_ref);
            let only_pieces = only_pieces.filter(|file| !names.contains(file));
            let has_patterns = self.filter.has_patterns();
            let is_abandoned = |name: &[u8]| {
                !has_patterns
                    && RelPath::parse(name)
                        .is_ok_and(|name| abandoned_parts::in_removed_directory(&name).is_some())
            };
            let others = names
                .iter()
                .filter(|name| !with_pieces.contains(name) && !is_abandoned(name));
            for name in others.chain(only_pieces) {
                all_removable &= self.list_tree(&path.join(name)?, verdict);
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(all_removable)
    }
}

struct Removal<'a> {
    root: &'a Root,
    filter: &'a Filter,
    home_device: Option<u64>,
    keeps_internal: bool,
    removed: u64,
    failures: Vec<Failure>,
}

/// Step of a removal.
enum Step {
    /// Removes an entry, a directory with its contents. The verdict is that of the parent directory.
    Entry(RelPath, Verdict),
    /// Removes a directory whose contents were removed.
    EmptiedDirectory(RelPath),
}

impl Removal<'_> {
    fn remove_tree(&mut self, path: &RelPath, parent_verdict: Verdict) {
        let mut steps = vec![Step::Entry(path.clone(), parent_verdict)];
        while let Some(step) = steps.pop() {
            let done = match step {
                Step::Entry(path, parent_verdict) => {
                    self.remove_entry(&path, parent_verdict, &mut steps)
                }
                Step::EmptiedDirectory(path) => self.remove_directory(&path),
            };
            self.failures.extend(done.err());
        }
    }

    /// Removes an entry that is not a directory. For a directory, adds the steps that remove it.
    fn remove_entry(
        &mut self,
        path: &RelPath,
        parent_verdict: Verdict,
        steps: &mut Vec<Step>,
    ) -> Result<(), Failure> {
        let (directory, on_other_file_system) = match self.root.stat(path) {
            Ok(stat) => classify(&stat, self.home_device),
            Err(failure) if failure.is_not_found() => (false, false),
            Err(failure) => return Err(failure),
        };
        let verdict = match parent_verdict {
            Verdict::Excluded => parent_verdict,
            _ => self.filter.verdict(path, directory, parent_verdict),
        };
        if self.keeps_internal
            && !self.filter.has_patterns()
            && let Some(parts) = abandoned_parts::in_removed_directory(path)
        {
            return parts.remove(self.root);
        }
        let is_kept = self.keeps_internal && path.is_internal();
        if is_kept || on_other_file_system || verdict == Verdict::Excluded {
            return Ok(());
        }
        if piece::exists(self.root, path) {
            let done = self.remove_one(|root| piece::remove(root, path));
            self.failures.extend(done.err());
        }
        if !directory {
            return self.remove_one(|root| root.remove(path));
        }
        self.root.make_writable(Some(path))?;
        let (names, error) = self.root.list(Some(path))?;
        steps.push(Step::EmptiedDirectory(path.clone()));
        let files = files_with_pieces(self.root, Some(path), &names)?;
        let only_pieces = files.iter().map(AsRef::as_ref);
        let only_pieces = only_pieces.filter(|file| !names.contains(file));
        for name in names.iter().chain(only_pieces) {
            steps.push(Step::Entry(path.join(name)?, verdict));
        }
        error.map_or(Ok(()), Err)
    }

    /// Removes a directory. It stays if entries in it were kept.
    fn remove_directory(&mut self, path: &RelPath) -> Result<(), Failure> {
        match self.remove_one(|root| root.remove_dir(path)) {
            Err(failure) if failure.errno() == Some(Errno::NOTEMPTY) => Ok(()),
            done => done,
        }
    }

    fn remove_one(
        &mut self,
        remove: impl FnOnce(&Root) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match remove(self.root) {
            Ok(()) => self.removed += 1,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}
