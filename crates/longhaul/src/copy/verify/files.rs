// SPDX-License-Identifier: MIT OR Apache-2.0
//! What there is in a tree, and what of it there should be.

use std::{collections::BTreeSet, fs::File, path::Path, sync::Arc};
use store::{
    blocks::Blocks,
    entry::{Entry, Kind, Version},
    filter::Filter,
    manifest::{Manifest, Record},
    path::RelPath,
    root::Failure,
    scan::{Item, Options, Scan, Source, SourceError},
};

/// What comes next of a tree.
pub(super) enum Next {
    /// A file of the size that it should have.
    File(ToRead),
    /// Something that can be said without reading it.
    Said(Found),
    /// Nothing needs to be said.
    Nothing,
}

/// What is found of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: String,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Differs(&'static str),
    Missing,
    Unknown,
    Unreadable(String),
}

/// A file that is to be read.
pub(super) struct ToRead {
    pub(super) path: RelPath,
    pub(super) record: Record,
    pub(super) version: Version,
    pub(super) blocks: Blocks,
    source: Source,
}

impl ToRead {
    pub(super) fn open(&self) -> Result<File, Failure> {
        self.source.open_file(&self.path)
    }

    /// What to say if its hash is another.
    pub(super) fn difference(&self) -> &'static str {
        let modified = self.version.modified;
        match (modified.seconds, modified.nanos) == self.record.mtime {
            true => "other contents, though size and time are the same: damaged",
            false => "other contents, written since",
        }
    }
}

/// All files, one after the other.
pub(super) struct Files<'a> {
    scan: Scan,
    sources: Arc<[Source]>,
    manifest: &'a Manifest,
    /// Paths that have a hash and were not seen yet.
    unseen: BTreeSet<&'a [u8]>,
}

impl<'a> Files<'a> {
    pub(super) fn open(top: &Path, manifest: &'a Manifest) -> Result<Self, SourceError> {
        // Its contents, not the directory under its name.
        let source = Source::open(&top.join(""))?;
        let scan = Scan::new([source], Filter::default(), Options::default())?;
        Ok(Self {
            sources: scan.sources().clone(),
            scan,
            manifest,
            unseen: manifest.iter().map(|(path, _)| path).collect(),
        })
    }

    fn judge(&mut self, entry: Entry, source: usize) -> Next {
        let record = self.manifest.lookup(entry.path.as_bytes()).copied();
        self.unseen.remove(entry.path.as_bytes());
        let said = |what| {
            let path = entry.path.to_string();
            Next::Said(Found { path, what })
        };
        match (&entry.kind, record) {
            (Kind::File { version, .. }, Some(record)) if version.size == record.size => {
                Next::File(ToRead {
                    record,
                    version: *version,
                    blocks: Blocks::of(version.size),
                    source: self.sources[source].clone(),
                    path: entry.path,
                })
            }
            (Kind::File { .. }, Some(_)) => said(What::Differs("another size")),
            (Kind::File { .. }, None) => said(What::Unknown),
            // Read under its first name.
            (Kind::HardLink { to }, _) if self.manifest.lookup(to.as_bytes()).is_some() => {
                Next::Nothing
            }
            (Kind::HardLink { .. }, _) => said(What::Unknown),
            (_, Some(_)) => said(What::Differs("no file any more")),
            (_, None) => Next::Nothing,
        }
    }
}

impl Iterator for Files<'_> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        match self.scan.next() {
            Some(Item::Entry { source, entry, .. }) => Some(self.judge(entry, source)),
            Some(Item::Failed(failure)) => Some(unreadable(&failure.to_string())),
            Some(Item::SourceFailed { failure, .. }) => Some(unreadable(&failure.to_string())),
            Some(Item::Top { .. } | Item::Skipped { .. }) => Some(Next::Nothing),
            None => {
                let path = self.unseen.pop_first()?;
                let shown = RelPath::parse(path).map(|path| path.to_string());
                Some(Next::Said(Found {
                    path: shown.unwrap_or_else(|_| String::from_utf8_lossy(path).into_owned()),
                    what: What::Missing,
                }))
            }
        }
    }
}

/// The failure names it.
fn unreadable(why: &str) -> Next {
    let (path, why) = why.split_once(": ").unwrap_or(("", why));
    Next::Said(Found {
        path: path.to_owned(),
        what: What::Unreadable(why.to_owned()),
    })
}
