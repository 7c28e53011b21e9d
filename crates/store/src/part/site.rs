// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of a partial file: its directory, its final name, and the internal names beside it.

use super::PartError;
use crate::{
    blocks::{Blocks, FILE_LEN_MAX},
    escape::Escaped,
    part::journal::{Header, Version},
    path::{KEPT, own_name},
    vfs::{Directory, FileOps, OpenError, OpenMode},
};
use std::io;

/// Maximum number of slices of one file that are open at the same time.
pub const SLICES_MAX: usize = 64;

/// Source file that a part is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Version of the source: blocks of another version are useless.
    pub version: Version,
    /// Bytes in the file.
    pub length: u64,
    /// Whether holes are kept. If not, space for the whole file is reserved at the start.
    pub sparse: bool,
}

/// Open part and its name, if there is one.
type OpenedPart<'a, D> = Option<(<D as Directory>::File, &'a [u8])>;

/// Final name of a file, and the internal names beside it.
pub(crate) struct Site<D> {
    pub(crate) dir: D,
    pub(crate) name: Vec<u8>,
    pub(crate) part: Vec<u8>,
    /// Name of the part while it is kept as a piece.
    pub(crate) kept: Vec<u8>,
    pub(crate) journal: Vec<u8>,
    pub(crate) whole: Vec<u8>,
    pub(crate) label: Vec<u8>,
}

impl<D: Directory> Site<D> {
    pub(crate) fn new(dir: &D, name: &[u8]) -> Result<Self, PartError> {
        if !is_component(name) {
            let name = Escaped(name).to_string();
            return Err(PartError::Name { name });
        }
        Ok(Self {
            dir: dir.clone(),
            name: name.to_vec(),
            part: own_name(name, "part"),
            kept: own_name(name, KEPT),
            journal: own_name(name, "journal"),
            whole: own_name(name, "whole"),
            label: own_name(name, "piece"),
        })
    }

    pub(crate) fn shown(&self) -> String {
        Escaped(&self.name).to_string()
    }

    pub(super) fn header(&self, origin: &Origin, block_len: u64) -> Result<Header, PartError> {
        let len = origin.length;
        if len > FILE_LEN_MAX {
            let name = self.shown();
            return Err(PartError::TooLong { name, len });
        }
        Ok(Header {
            version: origin.version,
            blocks: Blocks::sized(len, block_len),
        })
    }

    /// Adds the file's name to an error of the system.
    pub(crate) fn io<T>(&self, action: &'static str, done: io::Result<T>) -> Result<T, PartError> {
        let name = || self.shown();
        done.map_err(|source| PartError::Io {
            name: name(),
            action,
            source,
        })
    }

    pub(crate) fn open(&self, own: &[u8], how: OpenMode) -> Result<Option<D::File>, PartError> {
        let opened = self.dir.open(own, how);
        opened.map_err(|source| self.not_opened(own, source))
    }

    fn not_opened(&self, own: &[u8], source: OpenError) -> PartError {
        PartError::Open {
            name: self.shown(),
            own: Escaped(own).to_string(),
            source,
        }
    }

    /// Opens the part under either of its names, and returns the name.
    pub(crate) fn open_part(&self, how: OpenMode) -> Result<OpenedPart<'_, D>, PartError> {
        for own in [&self.kept, &self.part] {
            if let Some(file) = self.open(own, how)? {
                return Ok(Some((file, own)));
            }
        }
        Ok(None)
    }

    /// Name of a slice's journal.
    pub(super) fn slot(&self, number: usize) -> Vec<u8> {
        own_name(&self.name, &format!("journal-{number}"))
    }

    pub(super) fn make(&self, own: &[u8]) -> Result<D::File, PartError> {
        let made = self.open(own, OpenMode::CreateExclusive)?;
        self.io("create it", made.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// Creates an empty part. A former part is replaced, not truncated, because its journal may
    /// still be valid after a crash.
    pub(super) fn new_part(&self) -> Result<D::File, PartError> {
        self.displace(&self.kept)?;
        self.empty(&self.part)
    }

    /// Creates an empty file for content that is written at once. It is not the part, whose length
    /// has a meaning.
    pub(crate) fn new_whole(&self) -> Result<D::File, PartError> {
        self.remove_label()?;
        self.remove_journals()?;
        self.displace_part()?;
        self.empty(&self.whole)
    }

    /// Creates an internal file, replacing a former one.
    pub(super) fn empty(&self, own: &[u8]) -> Result<D::File, PartError> {
        self.displace(own)?;
        self.make(own)
    }

    /// Removes an internal file of an earlier run unless it is locked. The file may already have
    /// its final owner and mode.
    pub(super) fn displace(&self, own: &[u8]) -> Result<(), PartError> {
        let displaced = self.dir.remove_unlocked(own);
        displaced.map_err(|source| self.not_opened(own, source))
    }

    fn displace_part(&self) -> Result<(), PartError> {
        self.displace(&self.kept)?;
        self.displace(&self.part)
    }

    /// Removes an internal file unless it is locked. Returns whether it existed.
    pub(super) fn remove_own(&self, own: &[u8]) -> Result<bool, PartError> {
        let held = self.open(own, OpenMode::Exclusive)?;
        if held.is_some() {
            self.io("remove an internal file", self.dir.remove(own))?;
        }
        Ok(held.is_some())
    }

    /// Opens the part of an earlier run, exclusively. `None` if it already had its final owner and
    /// mode, but not its name, and cannot be written any more. The caller must hold the journal.
    /// The journal belongs to this user, so the part did too.
    pub(super) fn earlier_part(&self) -> Result<Option<D::File>, PartError> {
        match self.open_part(OpenMode::Exclusive) {
            Err(error) if error.is_given_away() => Ok(None),
            Ok(Some((file, own))) => {
                if own == self.kept {
                    // A loss of power may have restored it beside the part that replaced it.
                    self.displace(&self.part)?;
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
        let _alone = self.earlier_part()?;
        self.remove_slots()?;
        self.io("remove its journal", self.dir.remove(&self.journal))
    }

    /// Removes the journals of slices, durably. A loss of power may have left any of them.
    pub(super) fn remove_slots(&self) -> Result<(), PartError> {
        let mut any = false;
        for number in 0..SLICES_MAX {
            any |= self.remove_own(&self.slot(number))?;
        }
        match any {
            true => self.io("make its name durable", self.dir.sync()),
            false => Ok(()),
        }
    }

    /// Removes the label, durably, before its part changes.
    pub(super) fn remove_label(&self) -> Result<(), PartError> {
        match self.remove_own(&self.label)? {
            true => self.io("make the removal of its label durable", self.dir.sync()),
            false => Ok(()),
        }
    }

    /// Removes all internal files of the file. The label goes last, when the removal of the others
    /// is durable: leftovers are found by their label.
    pub(crate) fn remove_leftovers(&self) -> Result<(), PartError> {
        self.remove_journals()?;
        self.displace_part()?;
        self.displace(&self.whole)?;
        let Some(_held) = self.open(&self.label, OpenMode::Exclusive)? else {
            return Ok(());
        };
        self.io("make the removal of its part durable", self.dir.sync())?;
        self.io("remove its label", self.dir.remove(&self.label))
    }

    /// Gives the part the name of a piece. The name becomes durable with the label that is written
    /// next. Without the label, or under the old name, the part is found as well.
    pub(super) fn keep_part(&self) -> Result<(), PartError> {
        match self.part_name()? == self.kept {
            true => Ok(()),
            false => self.io("rename its part", self.dir.rename(&self.part, &self.kept)),
        }
    }

    /// Name of the part. The caller must hold the part.
    fn part_name(&self) -> Result<&[u8], PartError> {
        let kept = self.open(&self.kept, OpenMode::Read)?.is_some();
        Ok(if kept { &self.kept } else { &self.part })
    }

    /// Removes the part. The caller must hold it.
    pub(super) fn remove_part(&self) -> Result<(), PartError> {
        self.io("remove its part", self.dir.remove(self.part_name()?))
    }

    /// Writes a label beside the part, durably. The label is written to the `.whole` file first:
    /// the holder of the journal has both to itself.
    pub(super) fn put_label(&self, bytes: &[u8]) -> Result<(), PartError> {
        let file = self.empty(&self.whole)?;
        self.io("write its label", file.write_at(bytes, 0))?;
        self.io("make its label durable", file.sync_all())?;
        let renamed = self.dir.rename(&self.whole, &self.label);
        self.io("rename its label", renamed)?;
        self.io("make its label durable", self.dir.sync())
    }

    /// Gives the file its final name. Only a complete file has that name, even after a loss of
    /// power.
    pub(super) fn publish(
        &self,
        file: &D::File,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<(), PartError> {
        self.io("set its metadata", prepare(file))?;
        self.io("make it durable", file.sync_all())?;
        self.rename(self.part_name()?)?;
        self.io("make its name durable", self.dir.sync())
    }

    pub(crate) fn rename(&self, own: &[u8]) -> Result<(), PartError> {
        self.io("rename it to its name", self.dir.rename(own, &self.name))
    }
}

fn is_component(name: &[u8]) -> bool {
    let special = matches!(name, b"" | b"." | b"..");
    !special && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Removes the internal files beside a file that is complete and in the manifest, or that is no
/// longer wanted.
pub fn remove_leftovers<D: Directory>(dir: &D, name: &[u8]) -> Result<(), PartError> {
    Site::new(dir, name)?.remove_leftovers()
}
