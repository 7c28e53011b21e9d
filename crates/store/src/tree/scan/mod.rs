// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans sources for the entries to copy.
//!
//! The order is depth first, names sorted by bytes, a directory before its contents. A tree of
//! millions of files is streamed. Only the following is kept in memory:
//!
//! - The names in the directories on the current path, see [`Names`].
//! - The names of files that have pieces in these directories.
//! - The path of each file with several names, some 60 bytes, until its last name is found.
//! - The names of the sources in the copy, if there are several.

mod kind;
mod source;

pub use source::{Source, SourceError, is_contents_only, source_name};

use crate::{
    entry::{Entry, Kind},
    metadata::{
        Metadata, SkippedField,
        handle::{Handle, open_handle},
    },
    path::{RelPath, is_internal_name},
    piece,
    root::{Failure, Names, Refusal},
    tree::{
        filter::{Filter, Verdict},
        spread::{self, SPREAD_FILE, SpreadError, TreeShare},
    },
    vfs::Dir,
};
use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::FileType,
    io::Errno,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

/// Options of a scan.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Copies mount points, but not the file systems mounted there.
    pub one_file_system: bool,
    /// Reads no metadata: that of all entries is the default.
    pub names_only: bool,
}

/// Item that a scan returns.
#[derive(Debug)]
pub enum ScanItem {
    /// Entry to copy, with the metadata that could not be read.
    Entry {
        /// Index of the source.
        source: usize,
        /// Entry.
        entry: Entry,
        /// Fields of the metadata that could not be read.
        skipped: Vec<SkippedField>,
    },
    /// Top of a source of which only the contents are copied.
    Top {
        /// Metadata for the destination.
        metadata: Metadata,
        /// Fields of the metadata that could not be read.
        skipped: Vec<SkippedField>,
    },
    /// Piece of a file that this source does not have as a whole. The pieces in a directory come
    /// first, sorted by name.
    Piece {
        /// Index of the source.
        source: usize,
        /// Entry of the file, from its piece header.
        entry: Entry,
        /// Ranges of the blocks that the piece has; empty if only the piece header is left.
        piece_blocks: Vec<Range<u64>>,
    },
    /// Record, in a directory below the source, of trees that were spread over several hosts. The
    /// copy then contains a share of each. Records in the source itself and above are read by
    /// [`spread::shares_of_tree`].
    Shares {
        /// Directory of the record.
        path: RelPath,
        /// Contents of the record.
        shares: Result<Vec<TreeShare>, SpreadError>,
    },
    /// Entry that is never copied.
    Skipped {
        /// Path of the entry.
        path: RelPath,
        /// Reason.
        reason: SkipReason,
    },
    /// Entry that should have been copied. The scan continues.
    Failed(Failure),
    /// Source that should have been copied.
    SourceFailed {
        /// Source as given.
        source: PathBuf,
        /// Reason.
        failure: Failure,
    },
}

/// Reason why an entry is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// A socket is useless without the program that listens on it.
    #[error("sockets are not copied")]
    Socket,
    /// The contents of this directory are on another file system.
    #[error("another file system begins here")]
    OtherFileSystem,
}

/// End of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEnd {
    /// All entries were returned.
    Complete,
    /// This many entries could not be read. An entry missing from the scan may exist.
    Failures(u64),
    /// The scan has not ended.
    Unfinished,
}

/// Iterator over all entries to copy.
#[derive(Debug)]
pub struct Scan {
    sources: Arc<[Source]>,
    next_source: usize,
    filter: Filter,
    options: Options,
    frames: Vec<Frame>,
    queue: VecDeque<ScanItem>,
    links: Links,
    /// Source of each name at the top of the copy, if there are several sources.
    top_names: BTreeMap<RelPath, usize>,
    failures: u64,
    ended: bool,
}

/// Directory on the current path.
#[derive(Debug)]
struct Frame {
    source: usize,
    /// Path in the source's root.
    path_in_root: Option<RelPath>,
    /// Path in the copy.
    path: Option<RelPath>,
    device: u64,
    verdict: Verdict,
    names: Names,
    next: usize,
    /// Files of which the directory has pieces, still to be returned. They come first.
    pieces: VecDeque<Box<[u8]>>,
}

/// First name of each file with more names to come.
#[derive(Debug, Default)]
struct Links {
    seen: HashMap<(u64, u64), (RelPath, u64)>,
}

impl Links {
    /// Earlier name of this file in the copy, if any. Removes the file after its last name.
    fn earlier_name(&mut self, handle: &Handle, path: &RelPath) -> Option<RelPath> {
        let names = u64::from(handle.stat.st_nlink as u32);
        if names < 2 {
            return None;
        }
        match self.seen.entry((handle.stat.st_dev, handle.stat.st_ino)) {
            hash_map::Entry::Vacant(new) => {
                new.insert((path.clone(), names - 1));
                None
            }
            hash_map::Entry::Occupied(mut old) => {
                old.get_mut().1 -= 1;
                Some(match old.get().1 {
                    0 => old.remove().0,
                    _ => old.get().0.clone(),
                })
            }
        }
    }
}

impl Scan {
    /// Scan of all `sources`, in turn.
    ///
    /// # Errors
    /// Two sources would have the same name in the copy.
    pub fn new(
        sources: impl Into<Arc<[Source]>>,
        filter: Filter,
        options: Options,
    ) -> Result<Self, SourceError> {
        let sources = sources.into();
        let top_names = source::sources_by_name(&sources)?;
        let filter = filter.with_source_names(sources.iter().filter_map(Source::name));
        Ok(Self {
            sources,
            next_source: 0,
            filter,
            options,
            frames: Vec::new(),
            queue: VecDeque::new(),
            links: Links::default(),
            top_names,
            failures: 0,
            ended: false,
        })
    }

    /// State of the scan. Entries missing from a scan that did not end complete may exist, so
    /// nothing may be deleted because of it.
    #[must_use]
    pub fn ended(&self) -> ScanEnd {
        match (self.ended, self.failures) {
            (false, _) => ScanEnd::Unfinished,
            (true, 0) => ScanEnd::Complete,
            (true, failures) => ScanEnd::Failures(failures),
        }
    }

    /// Filter with the names of the sources: also for [`crate::tree::delete::DeletionPlan`].
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Sources, for opening files.
    #[must_use]
    pub fn sources(&self) -> &Arc<[Source]> {
        &self.sources
    }

    fn fail(&mut self, failure: Failure) {
        self.failures += 1;
        self.queue.push_back(ScanItem::Failed(failure));
    }

    /// Handles one name, the end of a directory, or the start of a source. Returns false at the
    /// end.
    fn step(&mut self) -> bool {
        let Some(frame) = self.frames.last_mut() else {
            return self.begin_source();
        };
        if let Some(name) = frame.pieces.pop_front() {
            self.visit_piece(&name)
                .unwrap_or_else(|failure| self.fail(failure));
            return true;
        }
        let Some(name) = frame.names.get(frame.next).map(<[u8]>::to_vec) else {
            self.frames.pop();
            return true;
        };
        frame.next += 1;
        let result = match is_internal_name(&name) {
            false => self.visit(&name),
            true if name == SPREAD_FILE.as_bytes() => self.read_shares(),
            true => Ok(()),
        };
        result.unwrap_or_else(|failure| self.fail(failure));
        true
    }

    fn read_shares(&mut self) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let source = &self.sources[frame.source];
        let below = frame
            .path
            .clone()
            .filter(|_| frame.path_in_root != source.path_in_root);
        if let Some(path) = below {
            let dir = source.root.dir_fd(frame.path_in_root.as_ref())?;
            let shares = Dir::new(dir.as_fd()).map_err(SpreadError::from);
            let shares = shares.and_then(|dir| spread::read(&dir));
            self.queue.push_back(ScanItem::Shares { path, shares });
        }
        Ok(())
    }

    fn begin_source(&mut self) -> bool {
        let index = self.next_source;
        let Some(source) = self.sources.get(index).cloned() else {
            return false;
        };
        self.next_source += 1;
        self.start_source(index, &source)
            .unwrap_or_else(|failure| self.fail(failure));
        true
    }

    fn start_source(&mut self, index: usize, source: &Source) -> Result<(), Failure> {
        let handle = match &source.path_in_root {
            Some(file) => source.root.handle(file)?,
            None => source.root.top_handle()?,
        };
        let device = handle.stat.st_dev;
        match &source.name {
            Some(name) => {
                let location = Location {
                    source: index,
                    path_in_root: source.path_in_root.clone(),
                    path: name.clone(),
                    device,
                };
                let verdict = self
                    .filter
                    .verdict(name, handle.kind().is_dir(), Verdict::Unmatched);
                self.add_entry(&location, &handle, verdict)
            }
            None => {
                if !handle.kind().is_dir() {
                    return Err(Failure::at(None, "read the directory")(Errno::NOTDIR));
                }
                if let Some(errno) = handle.unreadable {
                    return Err(Failure::at(None, "read the directory")(errno));
                }
                let (metadata, skipped) = Metadata::of(&handle);
                self.queue.push_back(ScanItem::Top { metadata, skipped });
                self.enter(
                    index,
                    (source.path_in_root.clone(), None),
                    device,
                    Verdict::Unmatched,
                    &handle,
                );
                Ok(())
            }
        }
    }

    fn visit(&mut self, name: &[u8]) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let (location, parent) = (frame.location(name)?, frame.verdict);
        let root = Arc::clone(&self.sources[frame.source].root);
        let dir = root.dir_fd(frame.path_in_root.as_ref())?;
        if self.is_excluded_as_any_type(&location.path, parent) {
            return Ok(());
        }
        let failed = Failure::at(Some(&location.path), "access");
        let handle = open_handle(dir.as_fd(), name).map_err(failed)?;
        let verdict = self
            .filter
            .verdict(&location.path, handle.kind().is_dir(), parent);
        self.claim(&location, verdict)?;
        self.add_entry(&location, &handle, verdict)
    }

    fn visit_piece(&mut self, name: &[u8]) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let (location, parent) = (frame.location(name)?, frame.verdict);
        let verdict = self.filter.verdict(&location.path, false, parent);
        if verdict == Verdict::Excluded {
            return Ok(());
        }
        let root = Arc::clone(&self.sources[frame.source].root);
        let dir = root.dir_fd(frame.path_in_root.as_ref())?;
        self.claim(&location, verdict)?;
        let result = piece::read_piece(dir.as_fd(), name);
        let (entry, piece_blocks) =
            result.map_err(|error| error.into_failure(location.path.parent().as_ref()))?;
        self.queue.push_back(ScanItem::Piece {
            source: location.source,
            entry: Entry {
                path: location.path,
                ..entry
            },
            piece_blocks,
        });
        Ok(())
    }

    /// Whether the entry is excluded whatever its type. It then need not exist or be readable.
    fn is_excluded_as_any_type(&self, path: &RelPath, parent: Verdict) -> bool {
        [true, false]
            .iter()
            .all(|&dir| self.filter.verdict(path, dir, parent) == Verdict::Excluded)
    }

    /// With several sources: a name at the top of the copy belongs to one of them.
    fn claim(&mut self, location: &Location, verdict: Verdict) -> Result<(), Failure> {
        let first = location.path.parent().is_none() && verdict != Verdict::Excluded;
        if !first || self.sources.len() < 2 {
            return Ok(());
        }
        let owner = *self
            .top_names
            .entry(location.path.clone())
            .or_insert(location.source);
        if owner == location.source {
            return Ok(());
        }
        Err(Failure::at(
            Some(&location.path),
            "copy it from two sources",
        )(Errno::EXIST))
    }

    fn add_entry(
        &mut self,
        location: &Location,
        handle: &Handle,
        verdict: Verdict,
    ) -> Result<(), Failure> {
        if verdict == Verdict::Excluded {
            return Ok(());
        }
        if handle.kind() == FileType::Socket {
            return self.skip(location, SkipReason::Socket);
        }
        let kind = self.kind(location, handle)?;
        let (metadata, skipped) = match self.options.names_only {
            true => Default::default(),
            false => Metadata::of(handle),
        };
        self.queue.push_back(ScanItem::Entry {
            source: location.source,
            entry: Entry {
                path: location.path.clone(),
                kind,
                metadata,
            },
            skipped,
        });
        if handle.kind().is_dir() {
            self.descend(location, handle, verdict)?;
        }
        Ok(())
    }

    fn skip(&mut self, location: &Location, reason: SkipReason) -> Result<(), Failure> {
        let path = location.path.clone();
        self.queue.push_back(ScanItem::Skipped { path, reason });
        Ok(())
    }

    /// Type of the entry. Checks that it can be read: an unreadable entry is an error.
    fn kind(&mut self, location: &Location, handle: &Handle) -> Result<Kind, Failure> {
        let kind = match handle.kind() {
            FileType::Directory | FileType::RegularFile if handle.unreadable.is_some() => {
                let errno = handle.unreadable.unwrap_or(Errno::ACCESS);
                return Err(Failure::at(Some(&location.path), "read")(errno));
            }
            FileType::Directory => return Ok(Kind::Directory),
            FileType::RegularFile if kind::has_data_at_length_zero(handle) => {
                return Err(Failure::Refused {
                    path: location.path.clone(),
                    refusal: Refusal::NoLength,
                });
            }
            FileType::RegularFile => kind::file_kind(handle),
            FileType::Symlink => kind::symlink_kind(handle, &location.path)?,
            FileType::Fifo => Kind::Fifo,
            FileType::BlockDevice | FileType::CharacterDevice => kind::device_kind(handle),
            _ => {
                return Err(Failure::at(Some(&location.path), "determine its type")(
                    Errno::INVAL,
                ));
            }
        };
        Ok(match self.links.earlier_name(handle, &location.path) {
            Some(to) => Kind::HardLink { to },
            None => kind,
        })
    }

    fn descend(
        &mut self,
        location: &Location,
        handle: &Handle,
        verdict: Verdict,
    ) -> Result<(), Failure> {
        if self.options.one_file_system && handle.stat.st_dev != location.device {
            return self.skip(location, SkipReason::OtherFileSystem);
        }
        let paths = (location.path_in_root.clone(), Some(location.path.clone()));
        self.enter(location.source, paths, location.device, verdict, handle);
        Ok(())
    }

    fn enter(
        &mut self,
        source: usize,
        (path_in_root, path): (Option<RelPath>, Option<RelPath>),
        device: u64,
        verdict: Verdict,
        handle: &Handle,
    ) {
        let (names, error) = Names::read(handle.fd.as_fd());
        if let Some(errno) = error {
            self.fail(Failure::at(path.as_ref(), "read the directory")(errno));
        }
        let mut frame = Frame {
            source,
            path_in_root,
            path,
            device,
            verdict,
            names,
            next: 0,
            pieces: VecDeque::new(),
        };
        self.find_pieces(&mut frame, handle.fd.as_fd());
        self.frames.push(frame);
    }

    /// Finds the pieces in a directory, except those of files that exist as a whole.
    fn find_pieces(&mut self, frame: &mut Frame, dir: BorrowedFd<'_>) {
        let (files, invalid) = piece::find_in_directory(dir, &frame.names);
        let only_pieces = files.into_iter().filter(|file| !frame.names.contains(file));
        frame.pieces = only_pieces.collect();
        for error in invalid {
            self.fail(error.into_failure(frame.path.as_ref()));
        }
    }
}

impl Frame {
    /// Location of a name in this directory.
    fn location(&self, name: &[u8]) -> Result<Location, Failure> {
        let join = |dir: &Option<RelPath>| match dir {
            Some(dir) => dir.join(name),
            None => RelPath::parse(name),
        };
        Ok(Location {
            source: self.source,
            path_in_root: Some(join(&self.path_in_root)?),
            path: join(&self.path)?,
            device: self.device,
        })
    }
}

/// Location of an entry.
struct Location {
    source: usize,
    path_in_root: Option<RelPath>,
    path: RelPath,
    /// Device number of the source's top.
    device: u64,
}

impl Iterator for Scan {
    type Item = ScanItem;

    fn next(&mut self) -> Option<ScanItem> {
        while self.queue.is_empty() && !self.ended {
            self.ended = !self.step();
        }
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_only_files_with_names_to_come() {
        let temp = tempfile::TempDir::new().unwrap();
        for name in ["a", "b", "other"] {
            std::fs::write(temp.path().join(name), "").unwrap();
        }
        for name in ["a2", "a3"] {
            std::fs::hard_link(temp.path().join("a"), temp.path().join(name)).unwrap();
        }
        let source = Source::open(&temp.path().join("")).unwrap();
        let mut scan = Scan::new([source], Filter::default(), Options::default()).unwrap();
        let mut remembered = || scan.next().map(|_| scan.links.seen.len());
        let top_a_a2_a3_b_other = [0, 1, 1, 0, 0, 0];
        assert_eq!([(); 6].map(|()| remembered().unwrap()), top_a_a2_a3_b_other);
        assert!(scan.next().is_none());
    }
}
