// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that have their final name.

use super::{PartError, paths::PartPaths};
use crate::{
    blocks::FileHash,
    vfs::{Dir, Directory, FileOps},
};
use std::io;

/// File that has its final name. Its blocks were read again and match the journal.
pub struct RenamedFile<D: Directory = Dir> {
    pub(super) paths: PartPaths<D>,
    pub(super) hash: FileHash,
    pub(super) file: D::File,
    pub(super) journal: D::File,
}

impl<D: Directory> RenamedFile<D> {
    /// Sets the file's metadata with `prepare`, and makes the file and its name durable. The file may
    /// lack the metadata if another copy of the same bytes created it.
    pub fn finish(
        self,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<FinishedFile<D>, PartError> {
        let paths = self.paths;
        paths.io_context("set its metadata", prepare(&self.file))?;
        paths.io_context("make it durable", self.file.sync_all())?;
        paths.io_context("make its name durable", paths.dir.sync())?;
        Ok(FinishedFile {
            paths,
            hash: Some(self.hash),
            journal: self.journal,
        })
    }
}

/// File that durably has its final name.
pub struct FinishedFile<D: Directory = Dir> {
    pub(super) paths: PartPaths<D>,
    /// Hash of the file, unless a block came without a hash.
    pub hash: Option<FileHash>,
    /// Locked journal. The lock keeps other processes from copying the file again before
    /// [`FinishedFile::remove_journal`].
    pub(super) journal: D::File,
}

impl<D: Directory> FinishedFile<D> {
    /// Removes the journal, and the piece header if the file was kept as a piece. The caller must
    /// first record durably in the manifest that the file is complete. Until then the journal
    /// prevents a second copy.
    pub fn remove_journal(self) -> Result<(), PartError> {
        let paths = &self.paths;
        let is_same_file = paths.io_context(
            "find its journal",
            paths.dir.refers_to(&paths.journal, &self.journal),
        )?;
        if !is_same_file {
            return Ok(());
        }
        paths.remove_internal(&paths.piece_header)?;
        paths.io_context("remove its journal", paths.dir.remove(&paths.journal))
    }
}
