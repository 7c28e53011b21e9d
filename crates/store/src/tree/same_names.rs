// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a source whose names the destination's file system takes for the same.
//!
//! File systems of Windows and macOS ignore case, and some normalise Unicode. ext4 and f2fs do so in directories that are
//! marked for it. There `README` and `readme` are one entry: the second one would replace the first. Names that differ
//! in nothing else are therefore tried in the directory itself.

use crate::{
    path::{INTERNAL_PREFIX, RelPath},
    root::{Failure, Root},
};
use rustix::fs::{Mode, OFlags};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};
use unicode_normalization::UnicodeNormalization as _;

/// Finds such entries among those of a scan, in its order. Keeps the names in the directories on the current path.
#[derive(Debug)]
pub struct SameNames<'a> {
    root: &'a Root,
    /// Whether names may be tried by creating a file.
    may_write: bool,
    frames: Vec<Frame>,
    /// Last directory that was found. Its contents belong to it.
    refused: Option<RelPath>,
}

#[derive(Debug)]
struct Frame {
    dir: Option<RelPath>,
    /// Names by the hash of their folded form.
    names: HashMap<u64, Box<[u8]>>,
}

impl<'a> SameNames<'a> {
    /// For a copy into `root`. With `may_write`, names of entries that do not exist yet are tried.
    #[must_use]
    pub fn new(root: &'a Root, may_write: bool) -> Self {
        Self {
            root,
            may_write,
            frames: Vec::new(),
            refused: None,
        }
    }

    /// Returns the earlier entry with which `path`, or a directory above it, would share its name at the destination.
    pub fn find(&mut self, path: &RelPath) -> Option<RelPath> {
        if let Some(refused) = &self.refused
            && path.strip_prefix(refused).is_some()
        {
            return Some(refused.clone());
        }
        let dir = path.parent();
        while self.frames.last().is_some_and(|frame| {
            frame.dir.is_some() && frame.dir != dir && !is_below(dir.as_ref(), frame.dir.as_ref())
        }) {
            self.frames.pop();
        }
        if self.frames.last().is_none_or(|frame| frame.dir != dir) {
            let names = HashMap::new();
            self.frames.push(Frame { dir, names });
        }
        let frame = self.frames.last_mut()?;
        let key = hash(&folded(path.name()));
        let Some(name) = frame.names.get(&key) else {
            frame.names.insert(key, path.name().into());
            return None;
        };
        let earlier = match &frame.dir {
            Some(dir) => dir.join(name),
            None => RelPath::parse(name),
        };
        let earlier = earlier.ok().filter(|earlier| earlier != path)?;
        if !are_same(self.root, self.may_write, &earlier, path).unwrap_or(false) {
            return None;
        }
        self.refused = Some(path.clone());
        Some(earlier)
    }
}

fn is_below(path: Option<&RelPath>, top: Option<&RelPath>) -> bool {
    match (path, top) {
        (Some(path), Some(top)) => path.strip_prefix(top).is_some(),
        (path, top) => path.is_some() && top.is_none(),
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Returns a form that names have in common if some file system may take them for the same: normalised, in lower case.
pub(super) fn folded(name: &[u8]) -> Vec<u8> {
    match str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            let folded: String = text.nfd().flat_map(char::to_lowercase).nfd().collect();
            folded.into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    }
}

/// Whether two names in a directory stand for one entry.
fn are_same(root: &Root, may_write: bool, one: &RelPath, other: &RelPath) -> Result<bool, Failure> {
    match (root.stat(one), root.stat(other)) {
        // Inode numbers say less: some FUSE file systems have one for each name.
        (Ok(_), Ok(_)) => {
            let (names, _) = root.list(one.parent().as_ref())?;
            Ok(!names.contains(one.name()) || !names.contains(other.name()))
        }
        (Err(a), Err(b)) if a.is_not_found() && b.is_not_found() && may_write => {
            try_names(root, one, other)
        }
        _ => Ok(false),
    }
}

/// Creates an empty file whose name contains that of `one`, and looks whether it is there by the name of `other`, too.
fn try_names(root: &Root, one: &RelPath, other: &RelPath) -> Result<bool, Failure> {
    let trial = |path: &RelPath| -> Result<RelPath, Failure> {
        let name = [INTERNAL_PREFIX, b"same-name-", path.name()].concat();
        Ok(match path.parent() {
            Some(dir) => dir.join(&name)?,
            None => RelPath::parse(&name)?,
        })
    };
    let (one, other) = (trial(one)?, trial(other)?);
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW;
    root.open_with(&one, flags, Mode::RUSR | Mode::WUSR)?;
    let is_same = root.stat(&other).is_ok();
    root.remove(&one)?;
    Ok(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn folded_names_ignore_case_and_normalisation() {
        for (one, other) in [
            ("README", "readme"),
            ("\u{c9}t\u{e9}", "e\u{301}te\u{301}"),
            ("\u{3a3}\u{3b1}", "\u{3c3}\u{3b1}"),
        ] {
            assert_eq!(folded(one.as_bytes()), folded(other.as_bytes()));
        }
        assert_ne!(folded(b"a"), folded(b"b"));
        assert_eq!(folded(b"\xffA"), b"\xffa");
    }

    /// On a file system that distinguishes names, nothing is found, and nothing stays of the trial.
    #[test]
    fn distinguished_names_are_not_found() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        let mut names = SameNames::new(&root, true);
        for name in ["README", "dir", "dir/A", "dir/a", "readme", "Readme"] {
            assert_eq!(names.find(&path(name)), None, "{name}");
        }
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
        assert_eq!(
            std::fs::read_dir(temp.path().join("dir")).unwrap().count(),
            0
        );
        std::fs::write(temp.path().join("b"), "").unwrap();
        std::fs::hard_link(temp.path().join("b"), temp.path().join("B")).unwrap();
        assert_eq!(names.find(&path("b")), None);
        assert_eq!(names.find(&path("B")), None, "two names of a file");
    }
}
