// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scan of a tree, compared with the recorded files.

use super::known_hashes::KnownHashes;
use longhaul_store::{
    blocks::{BlockHash, Blocks},
    entry::{Entry, Kind, Version},
    manifest::FileRecord,
    metadata::Time,
    path::{Printable, RelPath},
    piece,
    root::{Failure, Root},
    tree::{
        abandoned_parts::{self, AbandonedParts},
        filter::Filter,
        scan::{OpenFile, Options, Scan, ScanItem, Source, SourceError},
    },
};
use std::{borrow::Cow, collections::BTreeSet, ops::Range, path::Path, sync::Arc};

/// Next step of a scan.
pub(super) enum ScanStep {
    /// A file with the recorded size, which must be read.
    File(FileToRead),
    /// A finding that needs no reading.
    Finding(Finding),
    /// An entry without a finding.
    Nothing,
}

/// Finding about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Path in the file system.
    pub(super) path: Vec<u8>,
    pub(super) kind: FindingKind,
}

/// Kind of a finding, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FindingKind {
    /// Size or contents differ, for this reason.
    Differs(Cow<'static, str>),
    /// A recorded file does not exist.
    Missing,
    /// A file has no record.
    Unknown,
    /// A copy of it was interrupted, or is running.
    Unfinished,
    /// A file or directory cannot be read, for this reason.
    Unreadable(String),
}

/// File or piece of a file to read.
pub(super) struct FileToRead {
    pub(super) path: RelPath,
    pub(super) version: Version,
    pub(super) blocks: Blocks,
    pub(super) expected: Expected,
    source: Source,
}

/// Expected hashes of a file.
pub(super) enum Expected {
    /// Hash of the whole file.
    Whole(FileRecord),
    /// Hashes of these blocks, stored with the piece.
    Piece(Vec<Range<u64>>),
}

impl FileToRead {
    pub(super) fn open(&self) -> Result<OpenFile, Failure> {
        let in_piece = matches!(self.expected, Expected::Piece(_));
        self.source.open_file(&self.path, in_piece)
    }

    /// Returns the ranges of blocks that are present.
    pub(super) fn block_ranges(&self) -> Vec<Range<u64>> {
        match &self.expected {
            Expected::Whole(_) => std::iter::once(0..self.blocks.count()).collect(),
            Expected::Piece(piece_blocks) => piece_blocks.clone(),
        }
    }

    /// Whether the hashes of all blocks match the expected hash. The blocks of a piece were compared one by one.
    pub(super) fn matches(&self, hashes: &[BlockHash]) -> bool {
        match &self.expected {
            Expected::Whole(record) => self.blocks.file_hash(hashes) == Some(record.hash),
            Expected::Piece(_) => true,
        }
    }

    /// Returns the finding for a hash that does not match.
    pub(super) fn hash_mismatch(&self) -> FindingKind {
        let modified = self.version.modified;
        FindingKind::Differs(match &self.expected {
            Expected::Whole(record) if recorded_mtime(record).matches_stored(&modified) => {
                "different contents, although size and time are the same: damaged".into()
            }
            Expected::Whole(_) => "different contents, written since the copy".into(),
            Expected::Piece(_) => format!(
                "its piece here is damaged: remove {} beside it, and copy it here again",
                piece::piece_data_name(self.path.name())
            )
            .into(),
        })
    }
}

/// Returns the recorded modification time of the source's file.
fn recorded_mtime(record: &FileRecord) -> Time {
    let (seconds, nanos) = record.mtime;
    Time { seconds, nanos }
}

/// Iterator over all files of a tree.
pub(super) struct Files<'a> {
    scan: Scan,
    sources: Arc<[Source]>,
    known_hashes: &'a KnownHashes,
    /// Paths with a record that the scan has not found yet.
    missing: BTreeSet<&'a [u8]>,
    root: Root,
    /// Parts in the directories that were scanned, and that no finding has explained yet.
    parts: BTreeSet<AbandonedParts>,
}

impl<'a> Files<'a> {
    pub(super) fn open(top: &Path, known_hashes: &'a KnownHashes) -> Result<Self, SourceError> {
        // The trailing slash selects the contents of the directory.
        let source = Source::open(&top.join(""))?;
        let scan = Scan::new([source], Filter::default(), Options::default())?;
        let root = Root::open(top).map_err(|error| SourceError::Open {
            path: top.to_owned(),
            error,
        })?;
        Ok(Self {
            parts: abandoned_parts::find_all(&root, None).unwrap_or_default(),
            root,
            sources: scan.sources().clone(),
            scan,
            known_hashes,
            missing: known_hashes.iter().map(|(path, _)| path).collect(),
        })
    }

    /// Returns the finding, or that the file's copy is unfinished if it has a part.
    pub(super) fn explain(&mut self, finding: Finding) -> Finding {
        let is_of_copy = matches!(
            finding.kind,
            FindingKind::Differs(_) | FindingKind::Missing | FindingKind::Unknown
        );
        let parts = RelPath::parse(&finding.path).map(|path| AbandonedParts::of_file(&path));
        if is_of_copy && parts.is_ok_and(|parts| self.parts.remove(&parts)) {
            Finding {
                kind: FindingKind::Unfinished,
                ..finding
            }
        } else {
            finding
        }
    }

    /// Takes a part that no finding has explained.
    pub(super) fn take_part(&mut self) -> Option<Finding> {
        let path = self.parts.pop_first()?.path().ok()?.as_bytes().to_vec();
        let kind = FindingKind::Unfinished;
        Some(Finding { path, kind })
    }

    /// Compares an entry with its record.
    fn classify(&mut self, entry: Entry, source: usize) -> ScanStep {
        let record = self.known_hashes.lookup(entry.path.as_bytes());
        self.missing.remove(entry.path.as_bytes());
        let finding = |kind| {
            let path = entry.path.as_bytes().to_vec();
            ScanStep::Finding(Finding { path, kind })
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
            (Kind::File { .. }, Some(_)) => finding(FindingKind::Differs("different size".into())),
            (Kind::File { .. }, None) => finding(FindingKind::Unknown),
            // The file is read under its first name.
            (Kind::HardLink { to }, own)
                if self
                    .known_hashes
                    .lookup(to.as_bytes())
                    .is_some_and(|first| {
                        own.is_none_or(|own| (own.hash, own.size) == (first.hash, first.size))
                    }) =>
            {
                ScanStep::Nothing
            }
            (Kind::HardLink { .. }, None) if !self.sources[source].is_file(&entry.path) => {
                ScanStep::Nothing
            }
            (Kind::HardLink { .. }, Some(_)) if !self.sources[source].is_file(&entry.path) => {
                finding(FindingKind::Differs("not a file any more".into()))
            }
            (Kind::HardLink { .. }, Some(_)) => match self.sources[source].reread(&entry.path) {
                // The first name has no hash, or another.
                Ok(file) => self.classify(file, source),
                Err(failure) => unreadable(&failure),
            },
            (Kind::HardLink { .. }, None) => finding(FindingKind::Unknown),
            (_, Some(_)) => finding(FindingKind::Differs("not a file any more".into())),
            (_, None) => ScanStep::Nothing,
        }
    }

    fn piece(&mut self, entry: Entry, piece_blocks: Vec<Range<u64>>, source: usize) -> ScanStep {
        let Kind::File { version, .. } = entry.kind else {
            return ScanStep::Nothing;
        };
        self.missing.remove(entry.path.as_bytes());
        ScanStep::File(FileToRead {
            expected: Expected::Piece(piece_blocks),
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
            Some(ScanItem::Entry { source, entry, .. }) => {
                if entry.kind == Kind::Directory {
                    // A directory that cannot be listed is a finding of the scan.
                    let parts = abandoned_parts::find_all(&self.root, Some(&entry.path));
                    self.parts.extend(parts.unwrap_or_default());
                }
                Some(self.classify(entry, source))
            }
            Some(ScanItem::Failed(failure) | ScanItem::SourceFailed { failure, .. }) => {
                Some(unreadable(&failure))
            }
            Some(ScanItem::Piece {
                source,
                entry,
                piece_blocks,
            }) => Some(self.piece(entry, piece_blocks, source)),
            Some(
                ScanItem::Top { .. }
                | ScanItem::Shares { .. }
                | ScanItem::Skipped { .. }
                | ScanItem::Conflict { .. },
            ) => Some(ScanStep::Nothing),
            None => {
                let path = self.missing.pop_first()?.to_vec();
                let kind = FindingKind::Missing;
                Some(ScanStep::Finding(Finding { path, kind }))
            }
        }
    }
}

fn unreadable(failure: &Failure) -> ScanStep {
    let path = failure.path().map_or(&b"."[..], RelPath::as_bytes);
    let text = failure.to_string();
    // The text starts with the path, which the finding has already.
    let why = text.strip_prefix(&format!("{}: ", Printable(path)));
    ScanStep::Finding(Finding {
        path: path.to_vec(),
        kind: FindingKind::Unreadable(why.unwrap_or(&text).to_owned()),
    })
}
