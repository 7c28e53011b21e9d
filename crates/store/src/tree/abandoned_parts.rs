// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that interrupted copies left, of files that the source no longer has. No copy continues them, so a copy with
//! `--delete` removes them, and other copies those that are old. Their names have only a hash of the file's name.

use crate::{
    part::remove_leftovers_with_hash,
    path::{RelPath, hash_and_kind, internal_name_of, name_hash},
    root::{Failure, Names, Root},
    vfs::Dir,
};
use rustix::{fd::AsFd, io::Errno};
use std::{
    collections::{BTreeSet, HashSet},
    time::SystemTime,
};

/// Part of one file, its journals, and its small file without a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbandonedParts {
    directory: Option<RelPath>,
    hash: Box<[u8]>,
}

/// Finds abandoned parts in a directory, of files that are none of `source_names`. Pieces of a distributed tree are none.
pub(super) fn find(
    directory: Option<&RelPath>,
    names: &Names,
    source_names: &HashSet<Box<[u8]>>,
) -> Vec<AbandonedParts> {
    let mut found = hashes(names, is_of_part);
    if found.is_empty() {
        return Vec::new();
    }
    let used = hashes_of(source_names);
    let pieces = hashes(names, |kind| kind.starts_with(b"piece"));
    found.retain(|hash| !pieces.contains(hash) && !used.contains(*hash));
    let of_hash = |hash: &[u8]| AbandonedParts {
        directory: directory.cloned(),
        hash: hash.into(),
    };
    found.into_iter().map(of_hash).collect()
}

/// Finds all parts in a directory, also those in use. Pieces of a distributed tree are none.
///
/// # Errors
/// The directory cannot be listed.
pub fn find_all(
    root: &Root,
    directory: Option<&RelPath>,
) -> Result<BTreeSet<AbandonedParts>, Failure> {
    let (names, error) = root.list(directory)?;
    let found = find(directory, &names, &HashSet::new());
    error.map_or(Ok(found.into_iter().collect()), Err)
}

/// Finds parts in a directory that nobody has written since a time. Pieces of a distributed tree are none.
///
/// # Errors
/// The directory cannot be listed.
pub fn find_old(
    root: &Root,
    directory: Option<&RelPath>,
    before: SystemTime,
) -> Result<Vec<AbandonedParts>, Failure> {
    let (names, error) = root.list(directory)?;
    let mut found = find(directory, &names, &HashSet::new());
    let before = before.duration_since(SystemTime::UNIX_EPOCH);
    let before = before.map_or(0, |since| since.as_secs() as i64);
    let is_new = |name: &[u8]| {
        let path = directory.map_or_else(|| RelPath::parse(name), |dir| dir.join(name));
        let stat = path.ok().and_then(|path| root.stat(&path).ok());
        stat.is_none_or(|stat| stat.st_mtime >= before)
    };
    let internal = names
        .iter()
        .filter_map(|name| Some((name, hash_and_kind(name)?.0)));
    let new = internal.filter(|(name, _)| is_new(name));
    let new: HashSet<&[u8]> = new.map(|(_, hash)| hash).collect();
    found.retain(|parts| !new.contains(&*parts.hash));
    error.map_or(Ok(found), Err)
}

/// Whether the name is one of a part or small file that has not got its name, or of a journal.
fn is_of_part(kind: &[u8]) -> bool {
    matches!(kind, b"part" | b"whole") || kind.starts_with(b"journal")
}

/// Returns the abandoned parts that an internal file in a removed directory belongs to.
pub(super) fn in_removed_directory(path: &RelPath) -> Option<AbandonedParts> {
    let (hash, kind) = hash_and_kind(path.name())?;
    is_of_part(kind).then(|| AbandonedParts {
        directory: path.parent(),
        hash: hash.into(),
    })
}

fn hashes(names: &Names, is_wanted: impl Fn(&[u8]) -> bool) -> BTreeSet<&[u8]> {
    let internal = names.iter().filter_map(hash_and_kind);
    let wanted = internal.filter(|(_, kind)| is_wanted(kind));
    wanted.map(|(hash, _)| hash).collect()
}

fn hashes_of(names: &HashSet<Box<[u8]>>) -> HashSet<Vec<u8>> {
    names
        .iter()
        .map(|name| name_hash(name).into_bytes())
        .collect()
}

impl AbandonedParts {
    /// Returns those of a file whose copy was interrupted.
    #[must_use]
    pub fn of_file(path: &RelPath) -> Self {
        Self {
            directory: path.parent(),
            hash: name_hash(path.name()).as_bytes().into(),
        }
    }

    pub(super) fn directory(&self) -> Option<&RelPath> {
        self.directory.as_ref()
    }

    /// Removes them, unless another copy is using them, or they belong to another user, who may continue his copy.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, root: &Root) -> Result<(), Failure> {
        let parent = self.directory.as_ref();
        let opened = root.open_dir_to_write(parent)?;
        let dir = Dir::new(opened.as_fd()).map_err(|error| Failure::System {
            path: parent.cloned(),
            action: "open the directory",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        match remove_leftovers_with_hash(&dir, &self.hash) {
            Err(error) if !error.is_busy() && !error.has_final_owner_or_mode() => {
                Err(Failure::Part {
                    path: self.path()?,
                    error: Box::new(error),
                })
            }
            _ => Ok(()),
        }
    }

    /// Path of their part.
    ///
    /// # Errors
    /// It is too long.
    pub fn path(&self) -> Result<RelPath, Failure> {
        let name = internal_name_of(&self.hash, "part");
        Ok(match &self.directory {
            Some(directory) => directory.join(&name)?,
            None => RelPath::parse(&name)?,
        })
    }
}
