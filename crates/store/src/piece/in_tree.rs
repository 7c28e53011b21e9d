// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and removes pieces in a directory tree.

use super::open::{PieceFileError, read_piece_header};
use crate::{
    part::remove_leftovers,
    path::{INTERNAL_PREFIX, RelPath, internal_name},
    root::{Failure, Names, Root},
    vfs::Dir,
};
use rustix::{
    fd::{AsFd, BorrowedFd},
    io::Errno,
};
use std::collections::HashSet;

/// Names of the files of which a directory has pieces, sorted: their bytes and sixteen each. Also
/// the internal files that have the name of a piece header and are not valid.
pub(crate) fn find_in_directory(
    dir: BorrowedFd<'_>,
    names: &Names,
) -> (Vec<Box<[u8]>>, Vec<PieceFileError>) {
    let (mut files, mut invalid) = (Vec::new(), Vec::new());
    for internal in names.iter().filter(|name| is_piece_header(name)) {
        match read_piece_header(dir, internal) {
            Ok(entry) => files.push(entry.path.name().into()),
            Err(error) => invalid.push(error),
        }
    }
    files.sort_unstable();
    (files, invalid)
}

fn is_piece_header(name: &[u8]) -> bool {
    name.starts_with(INTERNAL_PREFIX) && name.ends_with(b".piece")
}

/// Internal names that belong to the pieces of some files.
pub(crate) struct PieceFileNames(HashSet<Vec<u8>>);

impl PieceFileNames {
    pub(crate) fn of(files: &[Box<[u8]>]) -> Self {
        Self(files.iter().map(|file| internal_name(file, "")).collect())
    }

    pub(crate) fn contains(&self, internal: &[u8]) -> bool {
        let Some(dot) = internal.iter().rposition(|byte| *byte == b'.') else {
            return false;
        };
        let (prefix, kind) = internal.split_at(dot + 1);
        let is_piece_kind = matches!(
            kind,
            b"piece" | b"piece-data" | b"part" | b"journal" | b"whole"
        ) || kind.starts_with(b"journal-");
        is_piece_kind && self.0.contains(prefix)
    }
}

/// Whether the tree has a piece of this file.
pub(crate) fn exists(root: &Root, file: &RelPath) -> bool {
    let location = root.dir_and_name(file);
    location.is_ok_and(|(dir, name)| {
        read_piece_header(dir.as_fd(), &internal_name(name, "piece")).is_ok()
    })
}

/// Removes the piece of a file unless another process is using it.
pub(crate) fn remove(root: &Root, file: &RelPath) -> Result<(), Failure> {
    let parent = file.parent();
    let opened = root.open_dir(parent.as_ref())?;
    let dir = Dir::new(opened.as_fd()).map_err(|error| Failure::System {
        path: parent,
        action: "open the directory",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    remove_leftovers(&dir, file.name()).map_err(|error| Failure::Part {
        path: file.clone(),
        error: Box::new(error),
    })
}
