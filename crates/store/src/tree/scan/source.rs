// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources: the arguments of a copy, and the entries below them, by their names in the copy.

use super::kind;
use crate::{
    blocks::BlockHash,
    entry::{Entry, Kind},
    metadata::{Metadata, handle::Handle},
    path::{RelPath, resolve_parent_links},
    piece::OpenPiece,
    root::{Failure, Refusal, Root},
};
use rustix::{fd::AsFd, fs::FileType, io::Errno};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Error for an argument that cannot be a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source is missing, or must not be read.
    #[error("{}: {error}", path.display())]
    Open {
        /// Argument as given.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
    /// The source has no name under which it can be copied.
    #[error("{}: {failure}", path.display())]
    Name {
        /// Argument as given.
        path: PathBuf,
        /// Reason.
        failure: Failure,
    },
    /// Two sources would have the same name in the copy, and are not both directories.
    #[error("{} and {} would both have the name {name}; copy them one after the other", first.display(), second.display())]
    SameName {
        /// Name in the copy.
        name: RelPath,
        /// First argument as given.
        first: PathBuf,
        /// Second argument as given.
        second: PathBuf,
    },
}

/// Argument of a copy: `SRC`, the entry itself under its name, or `SRC/`, its contents. A symbolic
/// link is an entry like others; with the slash, it stands for the directory that it leads to.
#[derive(Debug, Clone)]
pub struct Source {
    argument: PathBuf,
    /// Parent directory of the source.
    pub(super) root: Arc<Root>,
    /// Name in the parent; `None` for the root of the file system.
    pub(super) path_in_root: Option<RelPath>,
    /// Name in the copy; `None` if only the contents are copied.
    pub(super) name: Option<RelPath>,
}

/// Open file of a source: a whole file, or a piece of a file, whose blocks have recorded hashes.
#[derive(Debug)]
pub enum OpenFile {
    /// The whole file.
    Whole(File),
    /// Some blocks of the file.
    Piece(OpenPiece),
}

impl OpenFile {
    /// File that the blocks are read from.
    pub fn file(&self) -> &File {
        match self {
            Self::Whole(file) => file,
            Self::Piece(piece) => &piece.file,
        }
    }

    /// Whether the hash of a block matches the recorded one. A whole file has no recorded block hashes.
    #[must_use]
    pub fn hash_matches(&self, index: u64, hash: BlockHash) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Piece(piece) => piece.may_match(index, hash),
        }
    }
}

impl SourceError {
    /// Whether there is no such entry.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Open { error, .. } => error.kind() == io::ErrorKind::NotFound,
            Self::Name { failure, .. } => failure.is_not_found(),
            Self::SameName { .. } => false,
        }
    }
}

impl Source {
    /// Opens all arguments of a copy, each with its error: it is missing, or has a name that cannot be copied. Arguments
    /// in the same directory share descriptors: a thousand files cost one, and those that a [`Root`] caches.
    pub fn open_all<'a>(
        arguments: impl IntoIterator<Item = &'a Path>,
    ) -> Vec<Result<Self, SourceError>> {
        let mut roots = HashMap::new();
        let open = |argument| Self::open_sharing(argument, &mut roots);
        arguments.into_iter().map(open).collect()
    }

    /// Opens one argument.
    ///
    /// # Errors
    /// The argument is missing, or has a name that cannot be copied.
    pub fn open(argument: &Path) -> Result<Self, SourceError> {
        Self::open_sharing(argument, &mut HashMap::new())
    }

    /// Opens one argument below a root, at `path_in_root`; `None` is the root itself. Nothing
    /// outside the root is reached, and symbolic links are not followed.
    ///
    /// # Errors
    /// As [`Source::open`], or the path contains a symbolic link.
    pub fn open_below(
        root: &Arc<Root>,
        path_in_root: Option<RelPath>,
        argument: &Path,
    ) -> Result<Self, SourceError> {
        let failed = |failure| SourceError::Name {
            path: argument.into(),
            failure,
        };
        if let Some(path_in_root) = &path_in_root {
            root.stat(path_in_root).map_err(failed)?;
        }
        Ok(Self {
            argument: argument.into(),
            root: Arc::clone(root),
            path_in_root,
            name: source_name(argument).map_err(failed)?,
        })
    }

    fn open_sharing(
        argument: &Path,
        roots: &mut HashMap<PathBuf, Arc<Root>>,
    ) -> Result<Self, SourceError> {
        let failed = |error| SourceError::Open {
            path: argument.into(),
            error,
        };
        let unnamed = |failure| SourceError::Name {
            path: argument.into(),
            failure,
        };
        if is_contents_only(argument) && argument.is_dir() {
            // Opened at once: another directory may be mounted at its path meanwhile.
            let root = Arc::new(Root::open(argument).map_err(failed)?);
            return Self::open_below(&root, None, argument);
        }
        let real = if is_contents_only(argument) {
            argument.canonicalize()
        } else {
            argument.symlink_metadata().and_then(|_| {
                resolve_parent_links(argument).ok_or_else(|| io::ErrorKind::NotFound.into())
            })
        };
        let real = real.map_err(failed)?;
        let dir = real.parent().unwrap_or(&real);
        let root = match roots.get(dir) {
            Some(root) => Arc::clone(root),
            None => Arc::new(Root::open(dir).map_err(failed)?),
        };
        roots.insert(dir.into(), Arc::clone(&root));
        let path_in_root = real.file_name().map(|name| RelPath::parse(name.as_bytes()));
        Ok(Self {
            argument: argument.into(),
            root,
            path_in_root: path_in_root
                .transpose()
                .map_err(|bad| unnamed(bad.into()))?,
            name: source_name(argument).map_err(unnamed)?,
        })
    }

    pub(super) fn argument(&self) -> &Path {
        &self.argument
    }

    /// Name in the copy; `None` if only the contents are copied.
    #[must_use]
    pub fn name(&self) -> Option<&RelPath> {
        self.name.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn shares_descriptors_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// Opens a file that a scan found, or the piece of it, by the file's name in the copy. Compare its
    /// [`Version`](crate::entry::Version): it may have been replaced.
    ///
    /// # Errors
    /// The system's error, or the file has no piece header any more.
    pub fn open_file(&self, path: &RelPath, is_piece: bool) -> Result<OpenFile, Failure> {
        if is_piece {
            return self.open_piece(path).map(OpenFile::Piece);
        }
        match self.resolve(path) {
            Some(below) => self.root.open_file(&below).map(OpenFile::Whole),
            None => Err(Failure::at(Some(path), "open")(Errno::NOENT)),
        }
    }

    /// Reads the current entry of a file or a directory that a scan found, by its name in the copy.
    /// A file with other names is not reported as a hard link.
    ///
    /// # Errors
    /// The system's error, or the entry is not a file or a directory any more.
    pub fn reread(&self, path: &RelPath) -> Result<Entry, Failure> {
        let failed = Failure::at(Some(path), "read again");
        let Some(below) = self.resolve(path) else {
            return Err(failed(Errno::NOENT));
        };
        let handle = self.root.handle(&below)?;
        let kind = match (handle.kind(), handle.unreadable) {
            (FileType::Directory, _) => Kind::Directory,
            (FileType::RegularFile, None) => kind::file_kind(&handle),
            (FileType::RegularFile, Some(errno)) => return Err(failed(errno)),
            _ => return Err(failed(Errno::STALE)),
        };
        Ok(Entry {
            path: path.clone(),
            kind,
            metadata: Metadata::of(&handle).0,
        })
    }

    pub(crate) fn open_piece(&self, path: &RelPath) -> Result<OpenPiece, Failure> {
        let below = self.resolve(path).ok_or(Errno::NOENT);
        let below = below.map_err(Failure::at(Some(path), "open the piece of"))?;
        let (dir, name) = self.root.dir_and_name(&below)?;
        OpenPiece::open(dir.as_fd(), name).map_err(|why| why.into_failure(path.parent().as_ref()))
    }

    /// Whether the entry is a file, by its name in the copy.
    #[must_use]
    pub fn is_file(&self, path: &RelPath) -> bool {
        let stat = self
            .resolve(path)
            .and_then(|below| self.root.stat(&below).ok());
        stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    }

    /// Number of hard links of a file that a scan found, by one of its names in the copy.
    ///
    /// # Errors
    /// The system's error.
    pub fn hard_links(&self, path: &RelPath) -> Result<u64, Failure> {
        let below = self.resolve(path).ok_or(Errno::NOENT);
        let below = below.map_err(Failure::at(Some(path), "access"))?;
        let stat = self.root.stat(&below)?;
        Ok(u64::from(stat.st_nlink as u32))
    }

    /// Opens the source itself.
    pub(super) fn handle(&self) -> Result<Handle, Failure> {
        match &self.path_in_root {
            Some(path) => self.root.handle(path),
            None => self.root.top_handle(),
        }
    }

    /// Compares a source with an earlier one of its name: both are directories, or they are the same file.
    pub(super) fn check_same_name(&self, first: &Self) -> Result<(), SourceError> {
        let (Some(name), Ok(handle), Ok(first_handle)) =
            (&self.name, self.handle(), first.handle())
        else {
            // The scan reports what cannot be opened.
            return Ok(());
        };
        let are_directories = [&handle, &first_handle].iter().all(|of| of.kind().is_dir());
        if are_directories || handle.is_same_entry(&first_handle) {
            Ok(())
        } else {
            Err(SourceError::SameName {
                name: name.clone(),
                first: first.argument.clone(),
                second: self.argument.clone(),
            })
        }
    }

    /// Path in the root of the entry that is `path` in the copy.
    fn resolve(&self, path: &RelPath) -> Option<RelPath> {
        let below = match &self.name {
            Some(name) if path == name => return self.path_in_root.clone(),
            Some(name) => path.strip_prefix(name)?,
            None => path.clone(),
        };
        match &self.path_in_root {
            Some(path_in_root) => path_in_root.join_path(&below).ok(),
            None => Some(below),
        }
    }
}

/// Whether only the contents of an argument are copied, not the directory itself: `dir/`, `.`, `..`
/// and `/`.
#[must_use]
pub fn is_contents_only(argument: &Path) -> bool {
    matches!(last_name(argument), b"" | b"." | b"..")
}

fn last_name(argument: &Path) -> &[u8] {
    let bytes = argument.as_os_str().as_bytes();
    bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes)
}

/// Name under which a source is copied; `None` if only its contents are copied.
///
/// # Errors
/// The name cannot be copied.
pub fn source_name(argument: &Path) -> Result<Option<RelPath>, Failure> {
    if is_contents_only(argument) {
        return Ok(None);
    }
    let name = RelPath::parse(last_name(argument))?;
    if name.is_internal() {
        let why = Refusal::InternalName;
        return Err(Failure::Refused {
            path: name,
            refusal: why,
        });
    }
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_current_state_of_a_file_again() {
        let temp = tempfile::TempDir::new().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let source = Source::open(&temp.path().join("")).unwrap();
        let path = RelPath::parse(b"file").unwrap();
        let size = || match source.reread(&path).unwrap().kind {
            Kind::File { version, .. } => version.size,
            other => panic!("{other:?}"),
        };
        assert_eq!(size(), 3);
        std::fs::write(&file, "three").unwrap();
        assert_eq!(size(), 5);
        std::fs::remove_file(&file).unwrap();
        assert!(source.reread(&path).is_err(), "gone");
        std::fs::create_dir(&file).unwrap();
        let directory = source.reread(&path).unwrap();
        assert_eq!(directory.kind, Kind::Directory, "something else");
    }

    #[test]
    fn derives_names_of_sources() {
        let name = |text: &str| {
            source_name(Path::new(text))
                .unwrap()
                .map(|name| name.to_string())
        };
        assert_eq!(name("a/b"), Some("b".into()));
        for contents in ["a/", "a//", ".", "..", "a/.", "a/..", "/"] {
            assert_eq!(name(contents), None, "{contents}");
        }
        assert!(source_name(Path::new("a/.longhaul-0.part")).is_err());
    }
}
