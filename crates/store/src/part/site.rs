// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file's place: its directory, its name, and the names of our own beside it.

use super::PartError;
use crate::{
    blocks::{Blocks, FILE_LEN_MAX},
    escape::Escaped,
    medium::{Directory, How, Medium, OpenError},
    part::journal::{Header, Version},
    path::{KEPT, own_name},
};
use std::io;

/// Slices of one file that may be open at the same time.
pub const SLICES_MAX: usize = 64;

/// What a file is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The source's version: blocks of another one are of no use.
    pub version: Version,
    /// Bytes in the file.
    pub length: u64,
    /// Whether holes are to be kept. If not, space for the whole is reserved at once.
    pub sparse: bool,
}

/// A part and the name it has, if there is one.
type OpenedPart<'a, D> = Option<(<D as Directory>::File, &'a [u8])>;

/// A file's name and those of our own beside it.
pub(crate) struct Site<D> {
    pub(crate) dir: D,
    pub(crate) name: Vec<u8>,
    pub(crate) part: Vec<u8>,
    /// The part as it is called while it is kept as a piece.
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

    /// Names the file in an error of the system.
    pub(crate) fn io<T>(&self, action: &'static str, done: io::Result<T>) -> Result<T, PartError> {
        let name = || self.shown();
        done.map_err(|source| PartError::Io {
            name: name(),
            action,
            source,
        })
    }

    pub(crate) fn open(&self, own: &[u8], how: How) -> Result<Option<D::File>, PartError> {
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

    /// The part, under whichever name it has, and the name.
    pub(crate) fn open_part(&self, how: How) -> Result<OpenedPart<'_, D>, PartError> {
        for own in [&self.kept, &self.part] {
            if let Some(file) = self.open(own, how)? {
                return Ok(Some((file, own)));
            }
        }
        Ok(None)
    }

    /// The journal of a slice.
    pub(super) fn slot(&self, number: usize) -> Vec<u8> {
        own_name(&self.name, &format!("journal-{number}"))
    }

    pub(super) fn make(&self, own: &[u8]) -> Result<D::File, PartError> {
        let made = self.open(own, How::Make)?;
        self.io("make it", made.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// An empty part. A former one is not cut but replaced, because its journal may still be
    /// believed after a crash.
    pub(super) fn new_part(&self) -> Result<D::File, PartError> {
        self.displace(&self.kept)?;
        self.empty(&self.part)
    }

    /// An empty file for bytes that come whole. It is not the part, whose length means something.
    pub(crate) fn new_whole(&self) -> Result<D::File, PartError> {
        self.remove_label()?;
        self.remove_journals()?;
        self.displace_part()?;
        self.empty(&self.whole)
    }

    /// A file of ours, made anew.
    pub(super) fn empty(&self, own: &[u8]) -> Result<D::File, PartError> {
        self.displace(own)?;
        self.make(own)
    }

    /// Removes a part or a whole of an earlier run unless somebody is at it. It may have its final owner and mode already.
    pub(super) fn displace(&self, own: &[u8]) -> Result<(), PartError> {
        let displaced = self.dir.displace(own);
        displaced.map_err(|source| self.not_opened(own, source))
    }

    fn displace_part(&self) -> Result<(), PartError> {
        self.displace(&self.kept)?;
        self.displace(&self.part)
    }

    /// Removes a file of ours unless somebody is at it; whether it was there.
    pub(super) fn remove_own(&self, own: &[u8]) -> Result<bool, PartError> {
        let held = self.open(own, How::Hold)?;
        if held.is_some() {
            self.io("remove what is beside it", self.dir.remove(own))?;
        }
        Ok(held.is_some())
    }

    /// The part of an earlier run, held alone; none that had its final owner and mode already, but not its name,
    /// and can't be written any more. For who holds its journal: that is ours, so the part was nobody else's.
    pub(super) fn earlier_part(&self) -> Result<Option<D::File>, PartError> {
        match self.open_part(How::Hold) {
            Err(error) if error.is_given_away() => Ok(None),
            Ok(Some((file, own))) => {
                if own == self.kept {
                    // A loss of power may have brought it back beside the one that was to be in its place.
                    self.displace(&self.part)?;
                }
                Ok(Some(file))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes its journal, and before that those of slices, which are nowhere without it; none while a slice is
    /// written.
    pub(super) fn remove_journals(&self) -> Result<(), PartError> {
        let Some(_held) = self.open(&self.journal, How::Hold)? else {
            return Ok(());
        };
        let _alone = self.earlier_part()?;
        self.remove_slots()?;
        self.io("remove its journal", self.dir.remove(&self.journal))
    }

    /// Removes the journals of slices, durably. A loss of power may have left any.
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

    /// Removes the label, durably, before anything happens to what it is of.
    pub(super) fn remove_label(&self) -> Result<(), PartError> {
        match self.remove_own(&self.label)? {
            true => self.io("make durable that its label is gone", self.dir.sync()),
            false => Ok(()),
        }
    }

    /// Removes all that is beside it. The label goes last, when the rest is gone durably: as long as it is there, that
    /// is found by it.
    pub(crate) fn remove_leftovers(&self) -> Result<(), PartError> {
        self.remove_journals()?;
        self.displace_part()?;
        self.displace(&self.whole)?;
        let Some(_held) = self.open(&self.label, How::Hold)? else {
            return Ok(());
        };
        self.io("make durable that its part is gone", self.dir.sync())?;
        self.io("remove its label", self.dir.remove(&self.label))
    }

    /// Gives the part the name under which it is kept. It is durable with the label that comes next; without it, or without
    /// its new name, it is found all the same.
    pub(super) fn keep_part(&self) -> Result<(), PartError> {
        match self.part_name()? == self.kept {
            true => Ok(()),
            false => self.io("keep its part", self.dir.rename(&self.part, &self.kept)),
        }
    }

    /// What the part is called, for who holds it.
    fn part_name(&self) -> Result<&[u8], PartError> {
        let kept = self.open(&self.kept, How::Read)?.is_some();
        Ok(if kept { &self.kept } else { &self.part })
    }

    /// Removes the part, for who holds it.
    pub(super) fn remove_part(&self) -> Result<(), PartError> {
        self.io("remove its part", self.dir.remove(self.part_name()?))
    }

    /// Puts a label beside the part, durably. On its way it is a file that comes whole: whoever holds the journal is
    /// alone with both.
    pub(super) fn put_label(&self, bytes: &[u8]) -> Result<(), PartError> {
        let file = self.empty(&self.whole)?;
        self.io("write its label", file.write_at(bytes, 0))?;
        self.io("make its label durable", file.sync_all())?;
        let renamed = self.dir.rename(&self.whole, &self.label);
        self.io("give its label its name", renamed)?;
        self.io("make its label durable", self.dir.sync())
    }

    /// Under the final name only what is complete, even after a loss of power.
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
        self.io("give it its name", self.dir.rename(own, &self.name))
    }
}

fn is_component(name: &[u8]) -> bool {
    let special = matches!(name, b"" | b"." | b"..");
    !special && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Removes what is left beside a file that is complete and known to the manifest, or that nobody
/// wants any more.
pub fn remove_leftovers<D: Directory>(dir: &D, name: &[u8]) -> Result<(), PartError> {
    Site::new(dir, name)?.remove_leftovers()
}
