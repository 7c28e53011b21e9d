// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans sources for the entries to copy.
//!
//! The order is depth first, names sorted by bytes, a directory before its contents. A tree of
//! millions of files is streamed. Only the following is kept in memory:
//!
//! - The names in the directories on the current path, see [`Names`](crate::root::Names).
//! - The names of files that have pieces in these directories.
//! - The path of each file with several names, some 60 bytes, until its last name is found.
//! - The names at the top of the copy, if there are several sources.
//!
//! Directories of the same name in several sources become one, with the metadata of the first. Of other entries the first
//! is copied, and the others are conflicts.

mod frame;
mod kind;
mod source;
mod top_names;

pub use source::{OpenFile, Source, SourceError, is_contents_only, source_name};

use crate::{
    entry::{Entry, Kind},
    metadata::{
        Metadata, SkippedField,
        handle::{Handle, open_handle},
    },
    path::{RelPath, is_internal_name},
    piece,
    root::{Failure, Refusal},
    tree::{
        filter::{Filter, Verdict},
        spread::{self, SPREAD_FILE, SpreadError, TreeShare},
    },
    vfs::Dir,
};
use frame::{Frame, Layer, Location, Place};
use rustix::{fd::AsFd, fs::FileType, io::Errno};
use std::{
    collections::{HashMap, VecDeque, hash_map},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};
use top_names::{Claim, TopNames};

/// Options of a scan.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Copies mount points, but not the file systems mounted there.
    pub one_file_system: bool,
    /// Returns each name of a file as a file.
    pub hard_links_as_files: bool,
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
    /// Entry of a later source that has the path of an entry that was returned. Directories are merged instead.
    Conflict {
        /// Path in the copy.
        path: RelPath,
        /// Source of the entry that was returned, as given.
        first: PathBuf,
        /// Source of the other entry, as given.
        second: PathBuf,
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
    top_names: TopNames,
    failures: u64,
    /// Whether the top of a source was returned. The metadata is that of the first.
    has_top: bool,
    ended: bool,
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
    /// Two sources would have the same name in the copy, and are not both directories.
    pub fn new(
        sources: impl Into<Arc<[Source]>>,
        filter: Filter,
        options: Options,
    ) -> Result<Self, SourceError> {
        let sources = sources.into();
        let top_names = TopNames::of(&sources)?;
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
            has_top: false,
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
        if let Some((layer, name)) = frame.pieces.pop_front() {
            self.visit_piece(layer, &name)
                .unwrap_or_else(|failure| self.fail(failure));
            return true;
        }
        let Some((name, layers)) = frame.next_name() else {
            self.frames.pop();
            return true;
        };
        let result = match is_internal_name(&name) {
            false => self.visit(&name, &layers),
            true if name == SPREAD_FILE.as_bytes() => {
                layers.iter().try_for_each(|at| self.read_shares(*at))
            }
            true => Ok(()),
        };
        result.unwrap_or_else(|failure| self.fail(failure));
        true
    }

    fn read_shares(&mut self, layer: usize) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let layer = &frame.layers[layer];
        let source = &self.sources[layer.place.source];
        let below = frame
            .path
            .clone()
            .filter(|_| layer.place.path_in_root != source.path_in_root);
        if let Some(path) = below {
            let dir = source.root.dir_fd(layer.place.path_in_root.as_ref())?;
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
        let Some(name) = &source.name else {
            return self.start_contents(index, source);
        };
        if self.top_names.is_claimed(name) {
            // It was merged with an earlier source.
            return Ok(());
        }
        let handle = source.handle()?;
        let location = Location {
            source: index,
            path_in_root: source.path_in_root.clone(),
            path: name.clone(),
            device: handle.stat.st_dev,
        };
        let verdict = self
            .filter
            .verdict(name, handle.kind().is_dir(), Verdict::Unmatched);
        let others = self.others_at_top(&location, verdict)?;
        self.add_entry(&location, &handle, verdict, &others)
    }

    fn start_contents(&mut self, index: usize, source: &Source) -> Result<(), Failure> {
        let handle = source.handle()?;
        let failed = Failure::at(None, "read the directory");
        if !handle.kind().is_dir() {
            return Err(failed(Errno::NOTDIR));
        }
        if let Some(errno) = handle.unreadable {
            return Err(failed(errno));
        }
        if !std::mem::replace(&mut self.has_top, true) {
            let (metadata, skipped) = Metadata::of(&handle);
            self.queue.push_back(ScanItem::Top { metadata, skipped });
        }
        let mut frame = Frame::new(None, Verdict::Unmatched);
        let device = handle.stat.st_dev;
        let place = Place {
            source: index,
            path_in_root: source.path_in_root.clone(),
            device,
        };
        self.read_layer(&mut frame, place, &handle);
        self.enter(frame);
        Ok(())
    }

    fn visit(&mut self, name: &[u8], layers: &[usize]) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let locations = layers.iter().map(|at| frame.location(*at, name));
        let mut locations = locations.collect::<Result<VecDeque<_>, _>>()?;
        let (parent, at_top) = (frame.verdict, frame.path.is_none());
        while let Some(location) = locations.pop_front() {
            if self.is_excluded_as_any_type(&location.path, parent) {
                return Ok(());
            }
            match self.open(&location) {
                Ok(handle) => {
                    let is_dir = handle.kind().is_dir();
                    let verdict = self.filter.verdict(&location.path, is_dir, parent);
                    if at_top {
                        match self.top_names.claim_of(&location.path) {
                            Some(Claim::Entry) => return Ok(()),
                            Some(Claim::Piece) => return Err(conflict(&location.path)),
                            None => locations.extend(self.others_at_top(&location, verdict)?),
                        }
                    }
                    return self.add_entry(
                        &location,
                        &handle,
                        verdict,
                        locations.make_contiguous(),
                    );
                }
                Err(failure) => self.fail(failure),
            }
        }
        Ok(())
    }

    fn open(&self, location: &Location) -> Result<Handle, Failure> {
        let failed = Failure::at(Some(&location.path), "access");
        let root = &self.sources[location.source].root;
        let Some(path) = &location.path_in_root else {
            return root.top_handle();
        };
        let dir = root.dir_fd(path.parent().as_ref())?;
        open_handle(dir.as_fd(), path.name()).map_err(failed)
    }

    fn visit_piece(&mut self, layer: usize, name: &[u8]) -> Result<(), Failure> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let (location, parent) = (frame.location(layer, name)?, frame.verdict);
        let is_only_one = frame.pieces.front().is_none_or(|next| *next.1 != *name);
        let verdict = self.filter.verdict(&location.path, false, parent);
        if verdict == Verdict::Excluded {
            return Ok(());
        }
        let is_claimed = frame.path.is_none() && !self.top_names.claim_piece(&location.path);
        if is_claimed || !is_only_one {
            return Err(conflict(&location.path));
        }
        let root = Arc::clone(&self.sources[location.source].root);
        let dir = root.dir_fd(location.directory_in_root().as_ref())?;
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

    /// Claims a name at the top of the copy for this source, and returns where later sources have it.
    fn others_at_top(
        &mut self,
        location: &Location,
        verdict: Verdict,
    ) -> Result<Vec<Location>, Failure> {
        match verdict {
            Verdict::Excluded => Ok(Vec::new()),
            _ => self.top_names.claim(&self.sources, location),
        }
    }

    fn add_entry(
        &mut self,
        location: &Location,
        handle: &Handle,
        verdict: Verdict,
        others: &[Location],
    ) -> Result<(), Failure> {
        if verdict == Verdict::Excluded {
            return Ok(());
        }
        let others = self.merged(location, handle, others);
        if handle.kind() == FileType::Socket {
            self.skip(location, SkipReason::Socket);
            return Ok(());
        }
        let kind = self.kind(location, handle)?;
        let (metadata, skipped) = if self.options.names_only {
            Default::default()
        } else {
            Metadata::of(handle)
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
            self.descend(location, handle, verdict, &others);
        }
        Ok(())
    }

    fn skip(&mut self, location: &Location, reason: SkipReason) {
        let path = location.path.clone();
        self.queue.push_back(ScanItem::Skipped { path, reason });
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
        if self.options.hard_links_as_files {
            return Ok(kind);
        }
        Ok(match self.links.earlier_name(handle, &location.path) {
            Some(to) => Kind::HardLink { to },
            None => kind,
        })
    }

    /// Returns those of the other entries of this name that are directories, if this is one. The rest are conflicts,
    /// unless they are this very entry.
    fn merged<'a>(
        &mut self,
        first: &Location,
        handle: &Handle,
        others: &'a [Location],
    ) -> Vec<(&'a Location, Handle)> {
        let mut merged: Vec<(&Location, Handle)> = Vec::new();
        for other in others {
            match self.open(other) {
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => self.fail(failure),
                Ok(same)
                    if [handle]
                        .into_iter()
                        .chain(merged.iter().map(|(_, handle)| handle))
                        .any(|of| of.is_same_entry(&same)) => {}
                Ok(both) if both.kind().is_dir() && handle.kind().is_dir() => {
                    merged.push((other, both));
                }
                Ok(_) => self.queue.push_back(ScanItem::Conflict {
                    path: other.path.clone(),
                    first: self.sources[first.source].argument().into(),
                    second: self.sources[other.source].argument().into(),
                }),
            }
        }
        merged
    }

    fn descend(
        &mut self,
        location: &Location,
        handle: &Handle,
        verdict: Verdict,
        others: &[(&Location, Handle)],
    ) {
        let mut frame = Frame::new(Some(location.path.clone()), verdict);
        let others = others.iter().map(|(location, handle)| (*location, handle));
        for (location, handle) in [(location, handle)].into_iter().chain(others) {
            if self.options.one_file_system && handle.stat.st_dev != location.device {
                self.skip(location, SkipReason::OtherFileSystem);
                continue;
            }
            let place = Place {
                source: location.source,
                path_in_root: location.path_in_root.clone(),
                device: location.device,
            };
            self.read_layer(&mut frame, place, handle);
        }
        self.enter(frame);
    }

    /// Adds the names in a directory to a frame.
    fn read_layer(&mut self, frame: &mut Frame, place: Place, handle: &Handle) {
        let (layer, failures) = Layer::read(place, &frame.path, handle.fd.as_fd());
        frame.layers.push(layer);
        for failure in failures {
            self.fail(failure);
        }
    }

    fn enter(&mut self, mut frame: Frame) {
        if !frame.layers.is_empty() {
            frame.queue_pieces();
            self.frames.push(frame);
        }
    }
}

fn conflict(path: &RelPath) -> Failure {
    Failure::at(Some(path), "copy it from two sources")(Errno::EXIST)
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
