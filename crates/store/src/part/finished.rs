// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that has its final name.

use super::{PartError, site::Site};
use crate::{
    blocks::FileHash,
    medium::{Dir, Directory, Medium},
};
use std::io;

/// A file of which every byte was read under its final name, and is what the journal says.
pub struct Renamed<D: Directory = Dir> {
    pub(super) site: Site<D>,
    pub(super) hash: FileHash,
    pub(super) file: D::File,
    pub(super) journal: D::File,
}

impl<D: Directory> Renamed<D> {
    /// Makes it durable, and its metadata, for it may be another copy with the same bytes.
    pub fn finish(
        self,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<Finished<D>, PartError> {
        let site = self.site;
        site.io("set its metadata", prepare(&self.file))?;
        site.io("make it durable", self.file.sync_all())?;
        site.io("make its name durable", site.dir.sync())?;
        Ok(Finished {
            site,
            hash: Some(self.hash),
            journal: self.journal,
        })
    }
}

/// A file that has its final name, durably.
pub struct Finished<D: Directory = Dir> {
    pub(super) site: Site<D>,
    /// The hash of the whole, unless a block came without one.
    pub hash: Option<FileHash>,
    /// Still locked: nobody begins the file again, and finds the journal gone, before
    /// [`Finished::forget_journal`].
    pub(super) journal: D::File,
}

impl<D: Directory> Finished<D> {
    /// Removes the journal, and the label of a piece that grew to the whole. It is for the owner to
    /// call, once the manifest says durably that the file is complete: until then the journal saves
    /// it from being copied again.
    pub fn forget_journal(self) -> Result<(), PartError> {
        let site = &self.site;
        let ours = site.io(
            "look for its journal",
            site.dir.names(&site.journal, &self.journal),
        )?;
        if !ours {
            return Ok(());
        }
        site.remove_own(&site.label)?;
        site.io("remove its journal", site.dir.remove(&site.journal))
    }
}
