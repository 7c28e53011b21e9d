// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of a copy: what each stands for, and what is found there by its name in the copy.

use super::kind;
use crate::{
    entry::{Entry, Kind},
    metadata::Metadata,
    path::RelPath,
    piece::OpenPiece,
    root::{Failure, Refusal, Root},
};
use rustix::{fd::AsFd, fs::FileType, io::Errno};
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A source that cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is not there, or must not be looked at.
    #[error("{}: {error}", path.display())]
    Open {
        /// As given.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It has no name to be copied under.
    #[error("{}: {failure}", path.display())]
    Name {
        /// As given.
        path: PathBuf,
        /// Why not.
        failure: Failure,
    },
    /// Two would become one.
    #[error("{} and {} would both be called {name}; copy them one after the other", first.display(), second.display())]
    SameName {
        /// The name in the copy.
        name: RelPath,
        /// As given.
        first: PathBuf,
        /// As given.
        second: PathBuf,
    },
}

/// One argument of a copy: `SRC`, the thing itself under its name, or `SRC/`, what is in it. If it
/// is a symbolic link, it stands for what it points to.
#[derive(Debug, Clone)]
pub struct Source {
    shown: PathBuf,
    /// The directory that it is in.
    pub(super) root: Arc<Root>,
    /// Its name there; none if it is the root of the file system.
    pub(super) inside: Option<RelPath>,
    /// What it is called in the copy; none if only what is in it is copied.
    pub(super) name: Option<RelPath>,
}

impl Source {
    /// Looks up all arguments of a copy. Those of one directory share their descriptors: a thousand
    /// files cost one, and what a [`Root`] holds.
    ///
    /// # Errors
    /// One is not there, or its name is none that can be copied.
    pub fn open_all<'a>(
        arguments: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Vec<Self>, SourceError> {
        let mut roots = HashMap::new();
        let open = |argument| Self::open_sharing(argument, &mut roots);
        arguments.into_iter().map(open).collect()
    }

    /// Looks up one argument.
    ///
    /// # Errors
    /// As [`Source::open_all`].
    pub fn open(argument: &Path) -> Result<Self, SourceError> {
        Self::open_sharing(argument, &mut HashMap::new())
    }

    /// Looks up one argument below a root, where `inside` says, none being the root itself. Nothing beyond it is
    /// reached: here a symbolic link is only itself.
    ///
    /// # Errors
    /// As [`Source::open_all`], or a symbolic link is on the way.
    pub fn open_below(
        root: &Arc<Root>,
        inside: Option<RelPath>,
        argument: &Path,
    ) -> Result<Self, SourceError> {
        let failed = |failure| SourceError::Name {
            path: argument.into(),
            failure,
        };
        if let Some(inside) = &inside {
            root.stat(inside).map_err(failed)?;
        }
        Ok(Self {
            shown: argument.into(),
            root: Arc::clone(root),
            inside,
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
        let real = argument.canonicalize().map_err(failed)?;
        let dir = real.parent().unwrap_or(&real);
        let root = match roots.get(dir) {
            Some(root) => Arc::clone(root),
            None => Arc::new(Root::open(dir).map_err(failed)?),
        };
        roots.insert(dir.into(), Arc::clone(&root));
        let inside = real.file_name().map(|name| RelPath::parse(name.as_bytes()));
        Ok(Self {
            shown: argument.into(),
            root,
            inside: inside.transpose().map_err(|bad| unnamed(bad.into()))?,
            name: source_name(argument).map_err(unnamed)?,
        })
    }

    /// What it is called in the copy; none if only what is in it is copied.
    #[must_use]
    pub fn name(&self) -> Option<&RelPath> {
        self.name.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn shares_descriptors_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// Opens a file that a scan found here, by its name in the copy. Compare its [`Version`](crate::entry::Version): it
    /// may be another by now.
    ///
    /// # Errors
    /// As the system says.
    pub fn open_file(&self, path: &RelPath) -> Result<File, Failure> {
        match self.below(path) {
            Some(below) => self.root.open_file(&below),
            None => Err(Failure::at(Some(path), "open")(Errno::NOENT)),
        }
    }

    /// Looks at a file or a directory again that a scan found here, by its name in the copy: as it is
    /// now, whatever other names it has.
    ///
    /// # Errors
    /// As the system says; also if it is neither any more.
    pub fn look_again(&self, path: &RelPath) -> Result<Entry, Failure> {
        let failed = Failure::at(Some(path), "look again at");
        let Some(below) = self.below(path) else {
            return Err(failed(Errno::NOENT));
        };
        let held = self.root.handle(&below)?;
        let kind = match (held.kind(), held.unreadable) {
            (FileType::Directory, _) => Kind::Directory,
            (FileType::RegularFile, None) => kind::file(&held),
            (FileType::RegularFile, Some(errno)) => return Err(failed(errno)),
            _ => return Err(failed(Errno::STALE)),
        };
        Ok(Entry {
            path: path.clone(),
            kind,
            metadata: Metadata::of(&held).0,
        })
    }

    /// Opens the piece of a file that a scan found here, by the file's name in the copy. Compare its version: it
    /// may be another by now.
    ///
    /// # Errors
    /// As the system says, or there is no label any more that means this file.
    pub fn open_piece(&self, path: &RelPath) -> Result<OpenPiece, Failure> {
        let below = self.below(path).ok_or(Errno::NOENT);
        let below = below.map_err(Failure::at(Some(path), "open the piece of"))?;
        let (dir, name) = self.root.place(&below)?;
        OpenPiece::open(dir.as_fd(), name).map_err(|why| why.at(path.parent().as_ref()))
    }

    /// Whether it is a file, by its name in the copy.
    #[must_use]
    pub fn is_file(&self, path: &RelPath) -> bool {
        let stat = self
            .below(path)
            .and_then(|below| self.root.stat(&below).ok());
        stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    }

    /// How many names a file has that a scan found here, by one of them in the copy.
    ///
    /// # Errors
    /// As the system says.
    pub fn links(&self, path: &RelPath) -> Result<u64, Failure> {
        let below = self.below(path).ok_or(Errno::NOENT);
        let below = below.map_err(Failure::at(Some(path), "look at"))?;
        let stat = self.root.stat(&below)?;
        Ok(u64::from(stat.st_nlink as u32))
    }

    /// The path in the root of what is called `path` in the copy.
    fn below(&self, path: &RelPath) -> Option<RelPath> {
        let below = match &self.name {
            Some(name) if path == name => return self.inside.clone(),
            Some(name) => path.below(name)?,
            None => path.clone(),
        };
        match &self.inside {
            Some(inside) => inside.join_path(&below).ok(),
            None => Some(below),
        }
    }
}

/// Whether an argument of a copy stands for what is in it, not for the thing itself: `dir/`, `.`, `..` and `/`.
#[must_use]
pub fn means_contents(argument: &Path) -> bool {
    matches!(last_name(argument), b"" | b"." | b"..")
}

fn last_name(argument: &Path) -> &[u8] {
    let bytes = argument.as_os_str().as_bytes();
    bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes)
}

/// The name that a source is copied under: none if only what is in it is copied.
///
/// # Errors
/// It is no name for something that is copied.
pub fn source_name(argument: &Path) -> Result<Option<RelPath>, Failure> {
    if means_contents(argument) {
        return Ok(None);
    }
    let name = RelPath::parse(last_name(argument))?;
    if name.is_own() {
        let why = Refusal::OwnName;
        return Err(Failure::Refused { path: name, why });
    }
    Ok(Some(name))
}

/// The sources by the first names of what they copy, of which no two may be the same.
pub(super) fn named(sources: &[Source]) -> Result<BTreeMap<RelPath, usize>, SourceError> {
    let mut firsts = BTreeMap::new();
    for (index, source) in sources.iter().enumerate() {
        let Some(name) = &source.name else { continue };
        if let Some(first) = firsts.insert(name.clone(), index) {
            return Err(SourceError::SameName {
                name: name.clone(),
                first: sources[first].shown.clone(),
                second: source.shown.clone(),
            });
        }
    }
    Ok(firsts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_at_again_as_it_is_now() {
        let temp = tempfile::TempDir::new().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let source = Source::open(&temp.path().join("")).unwrap();
        let path = RelPath::parse(b"file").unwrap();
        let size = || match source.look_again(&path).unwrap().kind {
            Kind::File { version, .. } => version.size,
            other => panic!("{other:?}"),
        };
        assert_eq!(size(), 3);
        std::fs::write(&file, "three").unwrap();
        assert_eq!(size(), 5);
        std::fs::remove_file(&file).unwrap();
        assert!(source.look_again(&path).is_err(), "gone");
        std::fs::create_dir(&file).unwrap();
        let directory = source.look_again(&path).unwrap();
        assert_eq!(directory.kind, Kind::Directory, "something else");
    }

    #[test]
    fn names_of_sources() {
        let name = |text: &str| {
            source_name(Path::new(text))
                .unwrap()
                .map(|name| name.to_string())
        };
        assert_eq!(name("a/b"), Some("b".into()));
        for contents in ["a/", "a//", ".", "..", "a/.", "a/..", "/"] {
            assert_eq!(name(contents), None, "{contents}");
        }
        assert!(source_name(Path::new("a/.longhaul-x.part")).is_err());
    }
}
