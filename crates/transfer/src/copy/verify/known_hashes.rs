// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hashes that are kept of a directory: in its own manifest, or in one further up, if it came as part of a larger copy or under
//! a name of its own.

use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_store::{
    manifest::{FileRecord, MANIFEST, Manifest},
    tree::{
        filter::Filter,
        scan::{Item, Options, Scan, Source},
    },
    vfs::Dir,
};
use rustix::fs::{self, Mode, OFlags};
use std::{
    borrow::Cow,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

/// What a manifest says of a directory.
pub(super) struct KnownHashes {
    manifest: Manifest,
    /// The directory's path beneath the manifest's, with a slash behind it; empty if they are the same.
    prefix: Vec<u8>,
}

impl KnownHashes {
    /// The nearest that knows something in `dir`.
    pub(super) fn find(dir: &Path) -> Result<Self> {
        let refused = |why: String| Refusal::usage(format!("{}: {why}", dir.display()));
        let here = dir
            .canonicalize()
            .map_err(|error| refused(error.to_string()))?;
        let mut beneath = PathBuf::new();
        for top in here.ancestors() {
            let manifest = load(top).map_err(refused)?;
            let kept = Self {
                manifest,
                prefix: with_slash(&beneath),
            };
            if kept.iter().next().is_some() {
                kept.print_location(top);
                return Ok(kept);
            }
            let name = top.file_name().unwrap_or_default();
            beneath = Path::new(name).join(beneath);
        }
        if has_pieces(&here) {
            return Ok(Self {
                manifest: load(&here).map_err(refused)?,
                prefix: Vec::new(),
            });
        }
        Err(refused(format!(
            "no hashes are kept of it, in its {MANIFEST} or one further up: name what longhaul copy brought, without --hash off"
        )))
    }

    fn print_location(&self, top: &Path) {
        if !self.prefix.is_empty() {
            errln!("its hashes are in {}", top.join(MANIFEST).display());
        }
    }

    /// What is known of a path in the directory.
    pub(super) fn lookup(&self, path: &[u8]) -> Option<FileRecord> {
        let path = match self.prefix.as_slice() {
            [] => Cow::Borrowed(path),
            beneath => Cow::Owned([beneath, path].concat()),
        };
        self.manifest.lookup(&path).copied()
    }

    /// Paths in the directory, and what is known of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &FileRecord)> {
        let all = self.manifest.iter();
        all.filter_map(|(path, record)| Some((path.strip_prefix(self.prefix.as_slice())?, record)))
    }

    /// Bytes to be read.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|(_, record)| record.size).sum()
    }
}

/// None is as good as an empty one. Directories further up need not be readable.
fn load(top: &Path) -> Result<Manifest, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(top, flags, Mode::empty()).map_err(|error| error.to_string())?;
    let dir = Dir::new(opened.as_fd()).map_err(|error| error.to_string())?;
    Manifest::load(&dir).map_err(|error| error.to_string())
}

/// Whether there are pieces of files in it: their hashes are beside them.
fn has_pieces(dir: &Path) -> bool {
    let source = Source::open(&dir.join(""));
    let scan = source.and_then(|source| Scan::new([source], Filter::default(), Options::default()));
    scan.is_ok_and(|mut scan| scan.any(|item| matches!(item, Item::Piece { .. })))
}

fn with_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    match bytes {
        [] | [.., b'/'] => bytes.to_vec(),
        _ => [bytes, b"/"].concat(),
    }
}
