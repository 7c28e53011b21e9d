// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded hashes of a directory. They are in its own manifest, or in that of a parent directory, if the directory was
//! copied as part of a larger copy or under a new name.

use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_store::{
    manifest::{FileRecord, MANIFEST, Manifest},
    tree::{
        filter::Filter,
        scan::{Options, Scan, ScanItem, Source},
    },
    vfs::Dir,
};
use rustix::fs::{self, Mode, OFlags};
use std::{
    borrow::Cow,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

/// Records of a manifest about a directory.
pub(super) struct KnownHashes {
    manifest: Manifest,
    /// Path of the directory relative to the manifest's directory, with a trailing slash; empty if they are the same.
    prefix: Vec<u8>,
}

impl KnownHashes {
    /// Finds the nearest manifest with a record about `dir`.
    pub(super) fn find(dir: &Path) -> Result<Self> {
        let refuse = |why: String| Refusal::usage(format!("{}: {why}", dir.display()));
        let directory = dir
            .canonicalize()
            .map_err(|error| refuse(error.to_string()))?;
        let mut beneath = PathBuf::new();
        for top in directory.ancestors() {
            let manifest = load(top).map_err(refuse)?;
            let known = Self {
                manifest,
                prefix: with_slash(&beneath),
            };
            if known.iter().next().is_some() {
                known.print_location(top);
                return Ok(known);
            }
            let name = top.file_name().unwrap_or_default();
            beneath = Path::new(name).join(beneath);
        }
        if has_pieces(&directory) {
            return Ok(Self {
                manifest: load(&directory).map_err(refuse)?,
                prefix: Vec::new(),
            });
        }
        Err(refuse(format!(
            "no hashes of it are recorded, in its {MANIFEST} or that of a parent directory: name a directory that longhaul copy wrote, without --hash off"
        )))
    }

    fn print_location(&self, top: &Path) {
        if !self.prefix.is_empty() {
            errln!("its hashes are in {}", top.join(MANIFEST).display());
        }
    }

    /// Returns the record of a path in the directory.
    pub(super) fn lookup(&self, path: &[u8]) -> Option<FileRecord> {
        let path = match self.prefix.as_slice() {
            [] => Cow::Borrowed(path),
            beneath => Cow::Owned([beneath, path].concat()),
        };
        self.manifest.lookup(&path).copied()
    }

    /// Returns the paths in the directory with their records.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &FileRecord)> {
        let all = self.manifest.iter();
        all.filter_map(|(path, record)| Some((path.strip_prefix(self.prefix.as_slice())?, record)))
    }

    /// Returns the bytes to read.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|(_, record)| record.size).sum()
    }
}

/// Loads the manifest of a directory. A missing one counts as empty. Parent directories need not be readable.
fn load(top: &Path) -> Result<Manifest, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(top, flags, Mode::empty()).map_err(|error| error.to_string())?;
    let dir = Dir::new(opened.as_fd()).map_err(|error| error.to_string())?;
    Manifest::load(&dir).map_err(|error| error.to_string())
}

/// Whether the directory has pieces of files, whose hashes are stored beside them.
fn has_pieces(dir: &Path) -> bool {
    let source = Source::open(&dir.join(""));
    let scan = source.and_then(|source| Scan::new([source], Filter::default(), Options::default()));
    scan.is_ok_and(|mut scan| scan.any(|item| matches!(item, ScanItem::Piece { .. })))
}

fn with_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    match bytes {
        [] | [.., b'/'] => bytes.to_vec(),
        _ => [bytes, b"/"].concat(),
    }
}
