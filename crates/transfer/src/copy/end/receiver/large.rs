// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of several blocks on its way.

use super::block_set::BlockSet;
use crate::protocol::{
    block::Content,
    message::{Outcome, Share},
};
use longhaul_store::{
    blocks::{BlockHash, Blocks, FileHash},
    entry::{Entry, Kind},
    medium::Dir,
    metadata::{LeftOut, Metadata},
    part::{Finished, Opened, Origin, Part, PartError, Renamed, journal::Record, remove_leftovers},
    path::RelPath,
    root::Root,
};
use parking_lot::{Mutex, RwLock};
use std::{fs::File, io, ops::Range, os::fd::AsFd, sync::Arc, time::Duration};

/// Threads write it at the same time; one finishes it.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) entry: Arc<Entry>,
    pub(super) blocks: Blocks,
    /// What of it this conversation brings.
    wanted: BlockSet,
    share: Share,
    dir: Dir,
    origin: Origin,
    part: RwLock<Option<Part>>,
    sealed: Mutex<Option<Sealed>>,
}

/// The source has sent all and read nothing but this version; the hash, if it has it.
#[derive(Debug, Clone, Copy)]
struct Sealed(Option<FileHash>);

/// What there was of a file.
pub(super) enum Begun {
    /// Maybe something, not all.
    Lacking(Box<Large>),
    /// All, under its name: the last copy came no further.
    Renamed(Renamed),
    /// Another copy is at it.
    Busy,
}

/// The last things that a file under its name lacks.
pub(super) fn finish_renamed(entry: &Entry, renamed: Renamed) -> Result<Named, String> {
    let mut left_out = Vec::new();
    let finished = renamed.finish(|file| {
        left_out = apply(&entry.metadata, file)?;
        Ok(())
    });
    let finished = finished.map_err(|error| in_its_place(entry, &error))?;
    Ok(Named { finished, left_out })
}

/// A file that has its name.
pub(super) struct Named {
    pub(super) finished: Finished,
    pub(super) left_out: Vec<String>,
}

impl Large {
    pub(super) fn open(root: &Root, entry: &Entry, share: &Share) -> Result<Begun, String> {
        let Kind::File { version, sparse } = entry.kind else {
            return Err(format!("{}: not a regular file", entry.path));
        };
        let wanted = BlockSet::of(share, Blocks::of(version.size))
            .ok_or_else(|| format!("{}: it has no such blocks", entry.path))?;
        let dir = directory(root, &entry.path)?;
        let origin = Origin {
            version: (&version).into(),
            length: version.size,
            // The rest of a piece is elsewhere, and needs no space here.
            sparse: sparse || matches!(share, Share::Kept(_)),
        };
        let opened = open(&dir, entry.path.name(), &origin, share, &wanted);
        let part = match opened.map_err(|error| in_its_place(entry, &error))? {
            Opened::Busy => return Ok(Begun::Busy),
            Opened::Fresh(part) | Opened::Resumed(part) => part,
            Opened::Renamed(renamed) => return Ok(Begun::Renamed(renamed)),
        };
        if matches!(share, Share::Kept(_)) {
            // Whoever gathers the pieces looks at each block.
            part.trust();
        }
        Ok(Begun::Lacking(Box::new(Self {
            blocks: Blocks::of(version.size),
            wanted,
            share: share.clone(),
            dir,
            origin,
            entry: Arc::new(entry.clone()),
            part: RwLock::new(Some(part)),
            sealed: Mutex::new(None),
        })))
    }

    /// What it lacks.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let missing = self.with(|part| Ok(part.missing()));
        self.wanted.among(&missing.unwrap_or_default())
    }

    /// Takes a block, unless the file is done with: a copy of it that came on another stream was sooner.
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
        let taken = match content {
            Content::Hole => part.hole(index),
            Content::Data(_) => part.write(index, bytes, hash),
        };
        taken
            .map(drop)
            .map_err(|error| in_its_place(&self.entry, &error))
    }

    /// Makes durable what was written; how many bytes that are.
    pub(super) fn commit(&self) -> Result<u64, String> {
        let blocks = self.with(Part::commit)?;
        let length = |index: &u64| self.blocks.range(*index).map_or(0, |r| r.end - r.start);
        Ok(blocks.iter().map(length).sum())
    }

    pub(super) fn seal(&self, hash: Option<[u8; 32]>) {
        let sealed = Sealed(hash.map(FileHash));
        *self.sealed.lock() = Some(sealed);
    }

    /// Whether all of it is durable, and the source has said that it did not change.
    pub(super) fn is_complete(&self) -> bool {
        let is_sealed = self.sealed.lock().is_some();
        let durable = self.with(|part| Ok(part.durable()));
        let wanted = |durable: Vec<Record>| {
            let indices = durable.iter().map(|(index, _)| *index);
            indices.filter(|index| self.wanted.has(*index)).count() as u64
        };
        is_sealed && durable.is_ok_and(|durable| wanted(durable) == self.wanted.count())
    }

    /// The hash of it, once it is complete, unless the source has another.
    pub(super) fn agreed_hash(&self) -> Option<FileHash> {
        let hash = self.with(Part::hash).ok()??;
        let expected = self.expected();
        expected
            .is_none_or(|expected| expected == hash)
            .then_some(hash)
    }

    fn expected(&self) -> Option<FileHash> {
        self.sealed.lock().and_then(|Sealed(hash)| hash)
    }

    /// Reads a block again that was there already; whether there are more. What goes wrong with it comes up at the end.
    pub(super) fn check_next(&self) -> bool {
        self.with(Part::check_next).unwrap_or(false)
    }

    /// What was there already is not read again.
    pub(super) fn trust(&self) {
        let _done_with = self.with(|part| {
            part.trust();
            Ok(())
        });
    }

    /// A piece has come, maybe the last one: from now on the file is all that there is of it.
    pub(super) fn assemble(&self) -> Result<(), String> {
        if !matches!(self.share, Share::Piece(_)) {
            return Ok(());
        }
        // Others that come to here find it busy as long as this one holds its piece.
        drop(self.take()?);
        let opened = Part::open(&self.dir, self.entry.path.name(), &self.origin);
        let whole = match opened.map_err(|error| in_its_place(&self.entry, &error))? {
            Opened::Resumed(part) => part.missing().is_empty().then_some(part),
            // Another has given it its name meanwhile.
            Opened::Fresh(part) => {
                let discarded = part.discard();
                discarded.map_err(|error| in_its_place(&self.entry, &error))?;
                None
            }
            // Who is at it does that, or did.
            Opened::Busy | Opened::Renamed(_) => None,
        };
        if let Some(whole) = &whole {
            // Each block was looked at by who brought it.
            whole.trust();
        }
        *self.part.write() = whole;
        Ok(())
    }

    /// Gives it its name and metadata, if it gets them here and now.
    pub(super) fn finish(&self) -> Result<Option<Named>, String> {
        let mut part = self.part.write();
        let part = match (&self.share, part.take()) {
            (Share::Blocks(_), Some(_)) | (Share::Piece(_), None) => return Ok(None),
            (Share::Kept(_), Some(part)) => {
                let kept = part.keep(&self.entry);
                return kept
                    .map(|()| None)
                    .map_err(|error| in_its_place(&self.entry, &error));
            }
            (_, Some(part)) => part,
            (_, None) => return Err(self.gone()),
        };
        self.name(part).map(Some)
    }

    fn name(&self, part: Part) -> Result<Named, String> {
        // Of a file that was in pieces nobody knows the hash of the whole.
        let expected = self.expected();
        let mut left_out = Vec::new();
        let finished = part.finish(expected, |file| {
            left_out = apply(&self.entry.metadata, file)?;
            Ok(())
        });
        let finished = finished.map_err(|error| in_its_place(&self.entry, &error))?;
        Ok(Named { finished, left_out })
    }

    /// Whether it stays a piece.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.share, Share::Kept(_))
    }

    /// What arrived of it is worth nothing.
    pub(super) fn discard(&self) {
        if let Ok(part) = self.take() {
            // What stays is found and not believed next time.
            let _ = part.discard();
        }
    }

    fn take(&self) -> Result<Part, String> {
        let mut part = self.part.write();
        part.take().ok_or_else(|| self.gone())
    }

    fn with<T>(&self, act: impl FnOnce(&Part) -> Result<T, PartError>) -> Result<T, String> {
        let part = self.part.read();
        let part = part.as_ref().ok_or_else(|| self.gone())?;
        act(part).map_err(|error| in_its_place(&self.entry, &error))
    }

    fn gone(&self) -> String {
        format!("{}: done with already", self.entry.path)
    }
}

fn open(
    dir: &Dir,
    name: &[u8],
    origin: &Origin,
    share: &Share,
    wanted: &BlockSet,
) -> Result<Opened, PartError> {
    match share {
        Share::Blocks(_) | Share::Piece(_) => Part::open_slice(dir, name, origin, wanted.ranges()),
        Share::Whole | Share::Assembled | Share::Kept(_) => Part::open(dir, name, origin),
    }
}

/// Whoever holds a part may have been killed a moment ago: so many looks, with this between them.
const LOOKS: u32 = 30;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Does something again while it finds that another copy is at it, but not for long.
pub(super) fn unless_busy<T>(mut act: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
    for _ in 1..LOOKS {
        let done = act();
        if !is_busy(&done) {
            return done;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    act()
}

/// What a kill left beside a file that is there. Another copy that is still at it removes that itself.
pub(super) fn tidy(root: &Root, entry: &Entry) -> Result<(), String> {
    let dir = directory(root, &entry.path)?;
    match remove_leftovers(&dir, entry.path.name()) {
        Err(error) if !error.is_busy() => Err(in_its_place(entry, &error)),
        _ => Ok(()),
    }
}

/// The directory that a file is written in.
pub(super) fn directory(root: &Root, path: &RelPath) -> Result<Dir, String> {
    let parent = path.parent();
    let opened = root.open_dir(parent.as_ref());
    let opened = opened.map_err(|failure| format!("{path}: {failure}"))?;
    Dir::new(opened.as_fd()).map_err(|error| format!("{path}: {error}"))
}

/// Metadata of an open file, and what of it could not be had.
pub(super) fn apply(metadata: &Metadata, file: &File) -> io::Result<Vec<String>> {
    let applied = metadata.apply_to_file(file)?;
    Ok(said(&applied.left_out))
}

/// What of a file's metadata could not be had, in words.
pub(super) fn said(left_out: &[LeftOut]) -> Vec<String> {
    let said = |what: &LeftOut| format!("its {} ({})", what.what, what.errno);
    left_out.iter().map(said).collect()
}

/// What becomes of what is there, but for this.
pub(super) fn made(left_out: Vec<String>) -> Outcome {
    match left_out.is_empty() {
        true => Outcome::Made,
        false => Outcome::MadeWithout(left_out),
    }
}

/// Bytes of a file; nothing else has any.
pub(super) fn size(entry: &Entry) -> u64 {
    match entry.kind {
        Kind::File { version, .. } => version.size,
        _ => 0,
    }
}

/// Errors of parts name the file without its directory.
pub(super) fn in_its_place(entry: &Entry, error: &dyn std::error::Error) -> String {
    match entry.path.parent() {
        Some(parent) => format!("{parent}/{error}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::samples::{entry, file};
    use longhaul_store::blocks::BLOCK;

    /// A slow stream's copy of a block comes after all is done, while the file gets its name even.
    #[test]
    fn a_block_of_a_file_that_has_its_name_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let entry = entry("file", file(2 * BLOCK));
        let Ok(Begun::Lacking(large)) = Large::open(&root, &entry, &Share::Whole) else {
            panic!("it lacks all");
        };
        let hole = |index| large.write(index, Content::Hole, &[], None);
        assert_eq!((hole(0), hole(1), hole(0)), (Ok(()), Ok(()), Ok(())));
        large.commit().unwrap();
        large.seal(None);
        assert!(large.is_complete() && large.finish().unwrap().is_some());
        assert_eq!(hole(1), Ok(()));
        assert!(large.finish().is_err(), "it has its name once");
    }
}
