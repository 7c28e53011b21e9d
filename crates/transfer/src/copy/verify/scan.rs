// SPDX-License-Identifier: MIT OR Apache-2.0
//! What there is in a tree, and what of it there should be.

use super::known_hashes::KnownHashes;
use crate::copy::open_file::OpenFile;
use longhaul_store::{
    blocks::{BlockHash, Blocks},
    entry::{Entry, Kind, Version},
    manifest::FileRecord,
    metadata::Time,
    path::{Printable, RelPath},
    piece,
    root::Failure,
    tree::{
        filter::Filter,
        scan::{Item, Options, Scan, Source, SourceError},
    },
};
use std::{borrow::Cow, collections::BTreeSet, ops::Range, path::Path, sync::Arc};

/// What comes next of a tree.
pub(super) enum ScanStep {
    /// A file of the size that it should have.
    File(FileToRead),
    /// Something that can be said without reading it.
    Finding(Finding),
    /// Nothing needs to be said.
    Nothing,
}

/// What is found of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// As the file system has it.
    pub(super) path: Vec<u8>,
    pub(super) kind: FindingKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FindingKind {
    Differs(Cow<'static, str>),
    Missing,
    Unknown,
    Unreadable(String),
}

/// A file that is to be read, or a piece of one.
pub(super) struct FileToRead {
    pub(super) path: RelPath,
    pub(super) version: Version,
    pub(super) blocks: Blocks,
    pub(super) expected: Expected,
    source: Source,
}

/// What it should be.
pub(super) enum Expected {
    /// All of it has a hash.
    Whole(FileRecord),
    /// Each of these blocks has one.
    Piece(Vec<Range<u64>>),
}

impl FileToRead {
    pub(super) fn open(&self) -> Result<OpenFile, Failure> {
        let in_piece = matches!(self.expected, Expected::Piece(_));
        OpenFile::open(&self.source, &self.path, in_piece)
    }

    /// Blocks that there are of it.
    pub(super) fn block_ranges(&self) -> Vec<Range<u64>> {
        match &self.expected {
            Expected::Whole(_) => std::iter::once(0..self.blocks.count()).collect(),
            Expected::Piece(held) => held.clone(),
        }
    }

    /// Whether it is as expected, by the hashes of all its blocks. Those of a piece were looked at one by one.
    pub(super) fn matches(&self, hashes: &[BlockHash]) -> bool {
        match &self.expected {
            Expected::Whole(record) => self.blocks.file_hash(hashes) == Some(record.hash),
            Expected::Piece(_) => true,
        }
    }

    /// What to say if its hash is another.
    pub(super) fn hash_mismatch(&self) -> FindingKind {
        let modified = self.version.modified;
        FindingKind::Differs(match &self.expected {
            Expected::Whole(record) if recorded_mtime(record).matches_stored(&modified) => {
                "other contents, though size and time are the same: damaged".into()
            }
            Expected::Whole(_) => "other contents, written since".into(),
            Expected::Piece(_) => format!(
                "its piece here is damaged: remove {} beside it, and copy it here again",
                piece::piece_data_name(self.path.name())
            )
            .into(),
        })
    }
}

/// When the source's file was written.
fn recorded_mtime(record: &FileRecord) -> Time {
    let (seconds, nanos) = record.mtime;
    Time { seconds, nanos }
}

/// All files, one after the other.
pub(super) struct Files<'a> {
    scan: Scan,
    sources: Arc<[Source]>,
    known_hashes: &'a KnownHashes,
    /// Paths that have a hash and were not seen yet.
    missing: BTreeSet<&'a [u8]>,
}

impl<'a> Files<'a> {
    pub(super) fn open(top: &Path, kept: &'a KnownHashes) -> Result<Self, SourceError> {
        // Its contents, not the directory under its name.
        let source = Source::open(&top.join(""))?;
        let scan = Scan::new([source], Filter::default(), Options::default())?;
        Ok(Self {
            sources: scan.sources().clone(),
            scan,
            known_hashes: kept,
            missing: kept.iter().map(|(path, _)| path).collect(),
        })
    }

    fn classify(&mut self, entry: Entry, source: usize) -> ScanStep {
        let record = self.known_hashes.lookup(entry.path.as_bytes());
        self.missing.remove(entry.path.as_bytes());
        let said = |what| {
            let path = entry.path.as_bytes().to_vec();
            ScanStep::Finding(Finding { path, kind: what })
        };
        match (&entry.kind, record) {
            (Kind::File { version, .. }, Some(record)) if version.size == record.size => {
                ScanStep::File(FileToRead {
                    expected: Expected::Whole(record),
                    version: *version,
                    blocks: Blocks::new(version.size),
                    source: self.sources[source].clone(),
                    path: entry.path,
                })
            }
            (Kind::File { .. }, Some(_)) => said(FindingKind::Differs("another size".into())),
            (Kind::File { .. }, None) => said(FindingKind::Unknown),
            // Read under its first name.
            (Kind::HardLink { to }, _) if self.known_hashes.lookup(to.as_bytes()).is_some() => {
                ScanStep::Nothing
            }
            (Kind::HardLink { .. }, None) if !self.sources[source].is_file(&entry.path) => {
                ScanStep::Nothing
            }
            (Kind::HardLink { .. }, Some(_)) if !self.sources[source].is_file(&entry.path) => {
                said(FindingKind::Differs("no file any more".into()))
            }
            (Kind::HardLink { .. }, _) => said(FindingKind::Unknown),
            (_, Some(_)) => said(FindingKind::Differs("no file any more".into())),
            (_, None) => ScanStep::Nothing,
        }
    }

    fn piece(&mut self, entry: Entry, held: Vec<Range<u64>>, source: usize) -> ScanStep {
        let Kind::File { version, .. } = entry.kind else {
            return ScanStep::Nothing;
        };
        self.missing.remove(entry.path.as_bytes());
        ScanStep::File(FileToRead {
            expected: Expected::Piece(held),
            version,
            blocks: Blocks::new(version.size),
            source: self.sources[source].clone(),
            path: entry.path,
        })
    }
}

impl Iterator for Files<'_> {
    type Item = ScanStep;

    fn next(&mut self) -> Option<ScanStep> {
        match self.scan.next() {
            Some(Item::Entry { source, entry, .. }) => Some(self.classify(entry, source)),
            Some(Item::Failed(failure) | Item::SourceFailed { failure, .. }) => {
                Some(unreadable(&failure))
            }
            Some(Item::Piece {
                source,
                entry,
                piece_blocks: held,
            }) => Some(self.piece(entry, held, source)),
            Some(Item::Top { .. } | Item::Shares { .. } | Item::Skipped { .. }) => {
                Some(ScanStep::Nothing)
            }
            None => {
                let path = self.missing.pop_first()?.to_vec();
                let what = FindingKind::Missing;
                Some(ScanStep::Finding(Finding { path, kind: what }))
            }
        }
    }
}

fn unreadable(failure: &Failure) -> ScanStep {
    let path = failure.path().map_or(&b"."[..], RelPath::as_bytes);
    let said = failure.to_string();
    // It begins with the name, which the finding has.
    let why = said.strip_prefix(&format!("{}: ", Printable(path)));
    ScanStep::Finding(Finding {
        path: path.to_vec(),
        kind: FindingKind::Unreadable(why.unwrap_or(&said).to_owned()),
    })
}
