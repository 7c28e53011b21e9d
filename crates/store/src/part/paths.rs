// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of a partial file: its directory, its final name, and the internal names beside it.

use super::PartError;
use crate::{
    blocks::{Blocks, FILE_LEN_MAX},
    escape::Escaped,
    part::journal::{Header, Version},
    path::{PIECE_DATA, internal_name_of, name_hash},
    vfs::{Directory, FileOps, OpenError, OpenMode},
};
use std::io;

/// Maximum number of slices of one file that are open at the same time.
pub const SLICES_MAX: usize = 64;

/// Source file that a part is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceInfo {
    /// Version of the source: blocks of another version are useless.
    pub version: Version,
    /// Bytes in the file.
    pub length: u64,
    /// Whether holes are kept. If not, space for the whole file is reserved at the start.
    pub sparse: bool,
}

/// Open part and its name, if there is one.
type OpenPart<'a, D> = Option<(<D as Directory>::File, &'a [u8])>;

/// Final name of a file, and the internal names beside it.
pub(crate) struct PartPaths<D> {
    pub(crate) dir: D,
    pub(crate) name: Vec<u8>,
    pub(crate) part: Vec<u8>,
    /// Name of the part while it is kept as a piece.
    pub(crate) piece_data: Vec<u8>,
    pub(crate) journal: Vec<u8>,
    pub(crate) whole: Vec<u8>,
    pub(crate) piece_header: Vec<u8>,
}

impl<D: Directory> PartPaths<D> {
    pub(crate) fn new(dir: &D, name: &[u8]) -> Result<Self, PartError> {
        if !is_component(name) {
            let name = Escaped(name).to_string();
            return Err(PartError::Name { name });
        }
        Ok(Self::with_hash(
            dir,
            name.to_vec(),
            name_hash(name).as_bytes(),
        ))
    }

    /// Internal names of a file whose own name is unknown; `name` is for messages.
    fn with_hash(dir: &D, name: Vec<u8>, hash: &[u8]) -> Self {
        let internal = |kind| internal_name_of(hash, kind);
        Self {
            dir: dir.clone(),
            name,
            part: internal("part"),
            piece_data: internal(PIECE_DATA),
            journal: internal("journal"),
            whole: internal("whole"),
            piece_header: internal("piece"),
        }
    }

    pub(crate) fn display_name(&self) -> String {
        Escaped(&self.name).to_string()
    }

    pub(super) fn header(
        &self,
        source_info: &SourceInfo,
        block_len: u64,
    ) -> Result<Header, PartError> {
        let len = source_info.length;
        if len > FILE_LEN_MAX {
            let name = self.display_name();
            return Err(PartError::TooLong { name, len });
        }
        Ok(Header {
            version: source_info.version,
            blocks: Blocks::with_block_len(len, block_len),
        })
    }

    /// Adds the file's name to an error of the system.
    pub(crate) fn io_context<T>(
        &self,
        action: &'static str,
        done: io::Result<T>,
    ) -> Result<T, PartError> {
        let name = || self.display_name();
        done.map_err(|source| PartError::Io {
            name: name(),
            action,
            source,
        })
    }

    pub(crate) fn open(
        &self,
        internal: &[u8],
        open_mode: OpenMode,
    ) -> Result<Option<D::File>, PartError> {
        let opened = self.dir.open(internal, open_mode);
        opened.map_err(|source| self.open_error(internal, source))
    }

    fn open_error(&self, internal: &[u8], source: OpenError) -> PartError {
        PartError::Open {
            name: self.display_name(),
            internal: Escaped(internal).to_string(),
            source,
        }
    }

    /// Opens the part under either of its names, and returns the name.
    pub(crate) fn open_part(&self, open_mode: OpenMode) -> Result<OpenPart<'_, D>, PartError> {
        for internal in [&self.piece_data, &self.part] {
            if let Some(file) = self.open(internal, open_mode)? {
                return Ok(Some((file, internal)));
            }
        }
        Ok(None)
    }

    /// Name of a slice's journal.
    pub(super) fn slice_journal(&self, number: usize) -> Vec<u8> {
        [&self.journal, format!("-{number}").as_bytes()].concat()
    }

    pub(super) fn create(&self, internal: &[u8]) -> Result<D::File, PartError> {
        let created = self.open(internal, OpenMode::CreateExclusive)?;
        self.io_context("create it", created.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// Creates an empty part. A former part is replaced, not truncated, because its journal may
    /// still be valid after a crash.
    pub(super) fn create_part(&self) -> Result<D::File, PartError> {
        self.remove_unlocked(&self.piece_data)?;
        self.recreate(&self.part)
    }

    /// Creates an empty file for content that is written at once. It is not the part, whose length
    /// has a meaning.
    pub(crate) fn create_whole(&self) -> Result<D::File, PartError> {
        self.remove_piece_header()?;
        self.remove_journals()?;
        self.remove_unlocked_part()?;
        self.recreate(&self.whole)
    }

    /// Creates an internal file, replacing a former one.
    pub(super) fn recreate(&self, internal: &[u8]) -> Result<D::File, PartError> {
        self.remove_unlocked(internal)?;
        self.create(internal)
    }

    /// Removes an internal file of an earlier run unless it is locked. The file may already have
    /// its final owner and mode.
    pub(super) fn remove_unlocked(&self, internal: &[u8]) -> Result<(), PartError> {
        let removed = self.dir.remove_unless_locked(internal);
        removed.map_err(|source| self.open_error(internal, source))
    }

    fn remove_unlocked_part(&self) -> Result<(), PartError> {
        self.remove_unlocked(&self.piece_data)?;
        self.remove_unlocked(&self.part)
    }

    /// Removes an internal file unless it is locked. Returns whether it existed.
    pub(super) fn remove_internal(&self, internal: &[u8]) -> Result<bool, PartError> {
        let held = self.open(internal, OpenMode::Exclusive)?;
        if held.is_some() {
            self.io_context("remove an internal file", self.dir.remove(internal))?;
        }
        Ok(held.is_some())
    }

    /// Opens the part of an earlier run, exclusively. `None` if it already had its final owner and
    /// mode, but not its name, and cannot be written any more. The caller must hold the journal.
    /// The journal belongs to this user, so the part did too.
    pub(super) fn open_earlier_part(&self) -> Result<Option<D::File>, PartError> {
        match self.open_part(OpenMode::Exclusive) {
            Err(error) if error.has_final_owner_or_mode() => Ok(None),
            Ok(Some((file, internal))) => {
                if internal == self.piece_data {
                    // A loss of power may have restored it beside the part that replaced it.
                    self.remove_unlocked(&self.part)?;
                }
                Ok(Some(file))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the journal, and before it the journals of slices, which are useless without it.
    /// Fails while a slice is open.
    pub(super) fn remove_journals(&self) -> Result<(), PartError> {
        let Some(_held) = self.open(&self.journal, OpenMode::Exclusive)? else {
            return Ok(());
        };
        let _alone = self.open_earlier_part()?;
        self.remove_slice_journals()?;
        self.io_context("remove its journal", self.dir.remove(&self.journal))
    }

    /// Removes the journals of slices, durably. A loss of power may have left any of them.
    pub(super) fn remove_slice_journals(&self) -> Result<(), PartError> {
        let mut any = false;
        for number in 0..SLICES_MAX {
            any |= self.remove_internal(&self.slice_journal(number))?;
        }
        if any {
            self.io_context("make its name durable", self.dir.sync())
        } else {
            Ok(())
        }
    }

    /// Removes the piece header, durably, before its part changes.
    pub(super) fn remove_piece_header(&self) -> Result<(), PartError> {
        if self.remove_internal(&self.piece_header)? {
            self.io_context(
                "make the removal of its piece header durable",
                self.dir.sync(),
            )
        } else {
            Ok(())
        }
    }

    /// Removes all internal files of the file. The piece header goes last, when the removal of the
    /// others is durable: leftovers are found by their piece header.
    pub(crate) fn remove_leftovers(&self) -> Result<(), PartError> {
        self.remove_journals()?;
        self.remove_unlocked_part()?;
        self.remove_unlocked(&self.whole)?;
        let Some(_held) = self.open(&self.piece_header, OpenMode::Exclusive)? else {
            return Ok(());
        };
        self.io_context("make the removal of its part durable", self.dir.sync())?;
        self.io_context(
            "remove its piece header",
            self.dir.remove(&self.piece_header),
        )
    }

    /// Gives the part the name of a piece. The name becomes durable with the piece header that is
    /// written next. Without the piece header, or under the old name, the part is found as well.
    pub(super) fn rename_to_piece(&self) -> Result<(), PartError> {
        if self.part_name()? == self.piece_data {
            Ok(())
        } else {
            self.io_context(
                "rename its part",
                self.dir.rename(&self.part, &self.piece_data),
            )
        }
    }

    /// Name of the part. The caller must hold the part.
    fn part_name(&self) -> Result<&[u8], PartError> {
        let kept = self.open(&self.piece_data, OpenMode::Read)?.is_some();
        Ok(if kept { &self.piece_data } else { &self.part })
    }

    /// Removes the part. The caller must hold it.
    pub(super) fn remove_part(&self) -> Result<(), PartError> {
        self.io_context("remove its part", self.dir.remove(self.part_name()?))
    }

    /// Writes a piece header beside the part, durably. The piece header is written to the `.whole`
    /// file first: the holder of the journal has both to itself.
    pub(super) fn write_piece_header(&self, bytes: &[u8]) -> Result<(), PartError> {
        let file = self.recreate(&self.whole)?;
        self.io_context("write its piece header", file.write_at(bytes, 0))?;
        self.io_context("make its piece header durable", file.sync_all())?;
        let renamed = self.dir.rename(&self.whole, &self.piece_header);
        self.io_context("rename its piece header", renamed)?;
        self.io_context("make its piece header durable", self.dir.sync())
    }

    /// Gives the file its final name. Only a complete file has that name, even after a loss of
    /// power.
    pub(super) fn finalize(
        &self,
        file: &D::File,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<(), PartError> {
        self.io_context("set its metadata", prepare(file))?;
        self.io_context("make it durable", file.sync_all())?;
        self.rename_to_final_name(self.part_name()?)?;
        self.io_context("make its name durable", self.dir.sync())
    }

    pub(crate) fn rename_to_final_name(&self, internal: &[u8]) -> Result<(), PartError> {
        self.io_context(
            "rename it to its name",
            self.dir.rename(internal, &self.name),
        )
    }
}

fn is_component(name: &[u8]) -> bool {
    let special = matches!(name, b"" | b"." | b"..");
    !special && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Removes the internal files beside a file that is complete and in the manifest, or that is no
/// longer wanted.
pub fn remove_leftovers<D: Directory>(dir: &D, name: &[u8]) -> Result<(), PartError> {
    PartPaths::new(dir, name)?.remove_leftovers()
}

/// Removes the internal files of a file of which only the hash in their names is known.
pub(crate) fn remove_leftovers_with_hash<D: Directory>(
    dir: &D,
    hash: &[u8],
) -> Result<(), PartError> {
    let part = internal_name_of(hash, "part");
    PartPaths::with_hash(dir, part, hash).remove_leftovers()
}
