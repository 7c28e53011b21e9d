// SPDX-License-Identifier: MIT OR Apache-2.0
//! File of several blocks that is being received.

use super::{block_set::BlockSet, other_version::OtherVersion};
use crate::protocol::{
    block::Content,
    message::{Outcome, Portion},
    sections::SectionHash,
};
use longhaul_store::{
    blocks::{BlockHash, Blocks, FileHash},
    entry::{Entry, Kind},
    metadata::{Metadata, SkippedField},
    part::{FinishedFile, OpenOutcome, Part, PartError, RenamedFile, SourceInfo, remove_leftovers},
    path::RelPath,
    root::Root,
    vfs::Dir,
};
use parking_lot::{Mutex, RwLock};
use std::{fs::File, io, ops::Range, os::fd::AsFd, sync::Arc};

/// File of several blocks. Threads write it concurrently; one finishes it.
#[derive(Debug)]
pub(super) struct LargeFile {
    pub(super) entry: Arc<Entry>,
    pub(super) blocks: Blocks,
    /// Blocks that this session receives.
    wanted: BlockSet,
    portion: Portion,
    dir: Dir,
    origin: SourceInfo,
    /// Version of the file that is to be replaced, if its blocks are compared.
    before: Option<OtherVersion>,
    part: RwLock<Option<Part>>,
    sealed: Mutex<Option<Sealed>>,
}

/// Mark of a file that the source has sent whole and unchanged, with the hash, if the source has it.
#[derive(Debug, Clone, Copy)]
struct Sealed(Option<FileHash>);

/// Outcome of opening a file.
pub(super) enum OpenedFile {
    /// Open; blocks may be missing.
    Incomplete(Box<LargeFile>),
    /// Complete under its final name: the last run was killed right after the rename.
    Renamed(RenamedFile),
    /// Held by another copy.
    Busy,
}

/// Completes a file that an earlier run renamed.
pub(super) fn finish_renamed(entry: &Entry, renamed: RenamedFile) -> Result<CompletedFile, String> {
    let mut skipped_metadata = Vec::new();
    let finished = renamed.finish(|file| {
        skipped_metadata = apply_metadata(&entry.metadata, file)?;
        Ok(())
    });
    let finished = finished.map_err(|error| with_directory(entry, &error))?;
    Ok(CompletedFile {
        finished,
        skipped_metadata,
    })
}

/// File under its final name, with the metadata that could not be set.
pub(super) struct CompletedFile {
    pub(super) finished: FinishedFile,
    pub(super) skipped_metadata: Vec<String>,
}

impl LargeFile {
    pub(super) fn open(
        root: &Root,
        entry: &Entry,
        portion: &Portion,
        compares: bool,
    ) -> Result<OpenedFile, String> {
        let Kind::File { version, sparse } = entry.kind else {
            return Err(format!("{}: not a regular file", entry.path));
        };
        let wanted = BlockSet::of(portion, Blocks::new(version.size))
            .ok_or_else(|| format!("{}: it has no such blocks", entry.path))?;
        let dir = open_directory(root, &entry.path)?;
        let origin = SourceInfo {
            version: (&version).into(),
            length: version.size,
            // The rest of a piece is on other hosts, and needs no space here.
            sparse: sparse || matches!(portion, Portion::KeepPiece(_)),
        };
        let opened = open_part(&dir, entry.path.name(), &origin, portion, &wanted);
        let part = match opened.map_err(|error| with_directory(entry, &error))? {
            OpenOutcome::Busy => return Ok(OpenedFile::Busy),
            OpenOutcome::Fresh(part) | OpenOutcome::Resumed(part) => part,
            OpenOutcome::Renamed(renamed) => return Ok(OpenedFile::Renamed(renamed)),
        };
        if matches!(portion, Portion::KeepPiece(_)) {
            // The host that gathers the pieces verifies each block.
            part.trust_inherited();
        }
        Ok(OpenedFile::Incomplete(Box::new(Self {
            blocks: Blocks::new(version.size),
            wanted,
            portion: portion.clone(),
            dir,
            origin,
            before: (compares && *portion == Portion::Whole)
                .then(|| root.open_file(&entry.path).ok())
                .flatten()
                .map(|file| OtherVersion::new(file, Blocks::new(version.size))),
            entry: Arc::new(entry.clone()),
            part: RwLock::new(Some(part)),
            sealed: Mutex::new(None),
        })))
    }

    /// Whether there is another version whose blocks may be compared.
    pub(super) fn has_before(&self) -> bool {
        self.before.is_some()
    }

    /// Reads the other version, and returns the hashes of its first sections. Stops if `is_over`.
    pub(super) fn known_hashes(&self, is_over: impl Fn() -> bool) -> Vec<SectionHash> {
        let before = self.before.as_ref();
        before.map_or(Vec::new(), |before| before.hashes(is_over))
    }

    /// Returns the blocks still missing.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let missing = self.with_part(|part| Ok(part.missing()));
        self.wanted.intersection(&missing.unwrap_or_default())
    }

    /// Writes a block. A block of a finished file is ignored: its copy on another stream came first.
    pub(super) fn write(
        &self,
        index: u64,
        content: Content,
        bytes: &[u8],
        hash: Option<BlockHash>,
    ) -> Result<(), String> {
        let part = self.part.read();
        let Some(part) = part.as_ref() else {
            return Ok(());
        };
        let written = match content {
            Content::Hole => part.write_hole(index),
            Content::Data(_) => part.write(index, bytes, hash),
            Content::Changed { sections, .. } => {
                let block = self.patch_before(index, sections, bytes)?;
                part.write(index, &block, hash)
            }
        };
        written.map(drop).map_err(|error| match (content, &error) {
            // The hash shows whether the other version is still the one that was compared.
            (Content::Changed { .. }, PartError::Damaged { offset, .. }) => format!(
                "{}: the block at offset {offset} is not what the source sent: the file here was changed meanwhile, or the \
                 data in transit; copy it again",
                self.entry.path
            ),
            _ => with_directory(&self.entry, &error),
        })
    }

    fn patch_before(&self, index: u64, sections: u64, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let before = self.before.as_ref().ok_or(io::ErrorKind::NotFound.into());
        before
            .and_then(|before| before.patch(index, sections, bytes))
            .map_err(|error| format!("{}: its version here: {error}", self.entry.path))
    }

    /// Makes written data durable; returns the number of bytes.
    pub(super) fn commit(&self) -> Result<u64, String> {
        let blocks = self.with_part(Part::commit)?;
        let length = |index: &u64| self.blocks.range(*index).map_or(0, |r| r.end - r.start);
        Ok(blocks.iter().map(length).sum())
    }

    pub(super) fn seal(&self, hash: Option<FileHash>) {
        *self.sealed.lock() = Some(Sealed(hash));
    }

    /// Returns whether all wanted blocks are durable and the source has sealed the file.
    pub(super) fn is_complete(&self) -> bool {
        let are_durable = || self.with_part(|part| Ok(part.are_durable(self.wanted.ranges())));
        self.sealed.lock().is_some() && are_durable().unwrap_or(false)
    }

    /// Returns the hash of a complete file, unless the source's hash differs.
    pub(super) fn verified_hash(&self) -> Option<FileHash> {
        let hash = self.with_part(Part::hash).ok()??;
        let expected = self.expected_hash();
        expected
            .is_none_or(|expected| expected == hash)
            .then_some(hash)
    }

    fn expected_hash(&self) -> Option<FileHash> {
        self.sealed.lock().and_then(|Sealed(hash)| hash)
    }

    /// Verifies the next block of an earlier run; returns whether there are more. A mismatch is reported when
    /// the file is finished.
    pub(super) fn verify_next(&self) -> bool {
        self.with_part(Part::verify_next_inherited).unwrap_or(false)
    }

    /// Skips the verification of blocks that an earlier run wrote.
    pub(super) fn trust(&self) {
        let _closed = self.with_part(|part| {
            part.trust_inherited();
            Ok(())
        });
    }

    /// Releases a finished piece. After the last piece, this object takes over the whole file.
    pub(super) fn assemble(&self) -> Result<(), String> {
        if !matches!(self.portion, Portion::JoinPiece(_)) {
            return Ok(());
        }
        // Other sessions with a piece find the file busy as long as this one holds its piece.
        drop(self.take_part()?);
        let opened = Part::open(&self.dir, self.entry.path.name(), &self.origin);
        let whole = match opened.map_err(|error| with_directory(&self.entry, &error))? {
            OpenOutcome::Resumed(part) => part.missing().is_empty().then_some(part),
            // Another session has renamed the file meanwhile.
            OpenOutcome::Fresh(part) => {
                let discarded = part.discard();
                discarded.map_err(|error| with_directory(&self.entry, &error))?;
                None
            }
            // The session that holds the file assembles it, or has done so.
            OpenOutcome::Busy | OpenOutcome::Renamed(_) => None,
        };
        if let Some(whole) = &whole {
            // The session that received a block has verified it.
            whole.trust_inherited();
        }
        *self.part.write() = whole;
        Ok(())
    }

    /// Gives the file its name and metadata; `None` if this session does not name it.
    pub(super) fn finish(&self) -> Result<Option<CompletedFile>, String> {
        let mut part = self.part.write();
        let part = match (&self.portion, part.take()) {
            (Portion::Blocks(_), Some(_)) | (Portion::JoinPiece(_), None) => return Ok(None),
            (Portion::KeepPiece(_), Some(part)) => {
                let stored = part.keep_as_piece(&self.entry);
                return stored
                    .map(|()| None)
                    .map_err(|error| with_directory(&self.entry, &error));
            }
            (_, Some(part)) => part,
            (_, None) => return Err(self.closed_error()),
        };
        self.rename(part).map(Some)
    }

    fn rename(&self, part: Part) -> Result<CompletedFile, String> {
        // The hash of the whole is unknown for a file that was in pieces.
        let expected = self.expected_hash();
        let mut skipped_metadata = Vec::new();
        let finished = part.finish(expected, |file| {
            skipped_metadata = apply_metadata(&self.entry.metadata, file)?;
            Ok(())
        });
        let finished = finished.map_err(|error| with_directory(&self.entry, &error))?;
        Ok(CompletedFile {
            finished,
            skipped_metadata,
        })
    }

    /// Returns whether the file remains a piece here.
    pub(super) fn remains_piece(&self) -> bool {
        matches!(self.portion, Portion::KeepPiece(_))
    }

    /// Discards what arrived of the file.
    pub(super) fn discard(&self) {
        if let Ok(part) = self.take_part() {
            // A remainder is found next time, and not trusted.
            let _ = part.discard();
        }
    }

    fn take_part(&self) -> Result<Part, String> {
        let mut part = self.part.write();
        part.take().ok_or_else(|| self.closed_error())
    }

    fn with_part<T>(
        &self,
        action: impl FnOnce(&Part) -> Result<T, PartError>,
    ) -> Result<T, String> {
        let part = self.part.read();
        let part = part.as_ref().ok_or_else(|| self.closed_error())?;
        action(part).map_err(|error| with_directory(&self.entry, &error))
    }

    fn closed_error(&self) -> String {
        format!("{}: already finished", self.entry.path)
    }
}

fn open_part(
    dir: &Dir,
    name: &[u8],
    origin: &SourceInfo,
    portion: &Portion,
    wanted: &BlockSet,
) -> Result<OpenOutcome, PartError> {
    match portion {
        Portion::Blocks(_) | Portion::JoinPiece(_) => {
            Part::open_slice(dir, name, origin, wanted.ranges())
        }
        Portion::Whole | Portion::Finalize | Portion::KeepPiece(_) => Part::open(dir, name, origin),
    }
}

/// Removes what a killed copy left beside an existing file. Another copy that still runs removes its files
/// itself.
pub(super) fn remove_leftovers_of(root: &Root, entry: &Entry) -> Result<(), String> {
    let dir = open_directory(root, &entry.path)?;
    match remove_leftovers(&dir, entry.path.name()) {
        Err(error) if !error.is_busy() => Err(with_directory(entry, &error)),
        _ => Ok(()),
    }
}

/// Opens the directory that a file is written in.
pub(super) fn open_directory(root: &Root, path: &RelPath) -> Result<Dir, String> {
    let parent = path.parent();
    let opened = root.open_dir_to_write(parent.as_ref());
    let opened = opened.map_err(|failure| format!("{path}: {failure}"))?;
    Dir::new(opened.as_fd()).map_err(|error| format!("{path}: {error}"))
}

/// Sets metadata of an open file; describes what could not be set.
pub(super) fn apply_metadata(metadata: &Metadata, file: &File) -> io::Result<Vec<String>> {
    let applied = metadata.apply_to_file(file)?;
    Ok(describe_skipped(&applied.skipped))
}

/// Describes metadata that could not be set.
pub(super) fn describe_skipped(skipped_metadata: &[SkippedField]) -> Vec<String> {
    let describe = |what: &SkippedField| format!("its {} ({})", what.field, what.errno);
    skipped_metadata.iter().map(describe).collect()
}

/// Returns the outcome of a copied entry, with the metadata that it lacks.
pub(super) fn copied_outcome(skipped_metadata: Vec<String>) -> Outcome {
    if skipped_metadata.is_empty() {
        Outcome::Copied
    } else {
        Outcome::CopiedWithout(skipped_metadata)
    }
}

/// Returns the bytes of a file; 0 for other entries.
pub(super) fn size(entry: &Entry) -> u64 {
    match entry.kind {
        Kind::File { version, .. } => version.size,
        _ => 0,
    }
}

/// Adds the directory to an error of the part file, which has only the file's name.
pub(super) fn with_directory(entry: &Entry, error: &dyn std::error::Error) -> String {
    match entry.path.parent() {
        Some(parent) => format!("{parent}/{error}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::fixtures::{entry, file};
    use longhaul_store::blocks::BLOCK_LEN;

    /// A slow stream's copy of a block arrives after the file is complete and renamed.
    #[test]
    fn ignores_block_of_finished_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let entry = entry("file", file(2 * BLOCK_LEN));
        let Ok(OpenedFile::Incomplete(large)) =
            LargeFile::open(&root, &entry, &Portion::Whole, false)
        else {
            panic!("all blocks are missing");
        };
        let hole = |index| large.write(index, Content::Hole, &[], None);
        assert_eq!((hole(0), hole(1), hole(0)), (Ok(()), Ok(()), Ok(())));
        large.commit().unwrap();
        large.seal(None);
        assert!(large.is_complete() && large.finish().unwrap().is_some());
        assert_eq!(hole(1), Ok(()));
        assert!(large.finish().is_err(), "a file is renamed only once");
    }
}
