// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log of finished files: `.longhaul-manifest`, a line of text for each file.
//!
//! A line is `HASH SIZE MTIME PATH CHECK`, separated by single spaces:
//!
//! - HASH is the BLAKE3 of the file in hexadecimal.
//! - SIZE is its length in bytes.
//! - MTIME is its modification time: seconds since 1970, a point, nine digits.
//! - PATH may contain spaces. Bytes that are not printable are `\xNN`, a backslash is two.
//! - CHECK is 16 hexadecimal digits of the BLAKE3 of the line before it.
//!
//! The last line of a path counts. A line with a hash of zeros removes the path
//! ([`FileRecord::REMOVED`]). A line that was torn by a crash, or written by another program, is
//! ignored.
//!
//! Every user who may write in the directory may write the manifest: it has the group and the read
//! and write permissions of the directory. Several processes may append lines at the same time,
//! under the lock of the file. After waiting for the lock, a process opens the file again if it was
//! replaced. Only the holder of the lock replaces it.
//!
//! If another user has made the manifest and this one may not use it, as in a directory like /tmp, this one has its own,
//! `.longhaul-manifest-UID`.

use crate::{
    blocks::FileHash,
    escape::{Escaped, unescape},
    vfs::{Dir, Directory, FileOps, OpenError, OpenMode},
};
use std::{collections::BTreeMap, io};

/// Name of the manifest.
pub const MANIFEST: &str = ".longhaul-manifest";

/// Shortest manifest, in bytes, that is worth replacing.
const COMPACT_MIN: u64 = 1 << 20;

/// Bytes read or written at once: 1 MiB of memory.
const CHUNK_LEN: usize = 1 << 20;

/// Longest line, in bytes: a path of 4096 bytes, each escaped, and the other fields. No more of a
/// longer line is kept in memory.
const LINE_LEN_MAX: usize = 4 * 4096 + 256;

const CHECK_CONTEXT: &str = "longhaul 2026 manifest line";

/// Manifest entry of a finished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRecord {
    /// BLAKE3 hash of its bytes.
    pub hash: FileHash,
    /// Bytes in the file.
    pub size: u64,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
}

impl FileRecord {
    /// Marks a path as unknown: its file was removed, or replaced by one that was not hashed. No
    /// known input has this hash.
    pub const REMOVED: Self = Self {
        hash: FileHash([0; 32]),
        size: 0,
        mtime: (0, 0),
    };
}

/// Error of an operation on the manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The path holds something else, or cannot be read.
    #[error("cannot open {name}: {error}")]
    Open {
        /// Name in the directory.
        name: String,
        /// Reason.
        error: OpenError,
    },
    /// The system refused an operation.
    #[error("cannot {action} {MANIFEST}: {source}")]
    Io {
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl ManifestError {
    /// Whether another user has put something into the place of the manifest, or keeps this one from it. That is no fault of
    /// the disk.
    #[must_use]
    pub fn is_of_another_user(&self) -> bool {
        matches!(self, Self::Open { error, .. } if is_of_another_user(error))
    }
}

fn is_of_another_user(error: &OpenError) -> bool {
    match error {
        OpenError::Untrusted(_) => true,
        OpenError::Io(error) => error.kind() == io::ErrorKind::PermissionDenied,
        OpenError::Busy => false,
    }
}

/// Manifest of a directory: its contents when it was loaded, and the entries that this process
/// appended since. Memory per file: about 120 bytes and the path.
pub struct Manifest<D: Directory = Dir> {
    dir: D,
    name: String,
    contents: Contents,
}

#[derive(Debug, Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, FileRecord>,
    lines: u64,
    ignored: u64,
}

/// Adds a name to an error.
fn at(name: &str) -> impl Fn(OpenError) -> ManifestError {
    let name = name.to_owned();
    move |error| ManifestError::Open {
        name: name.clone(),
        error,
    }
}

/// Name of this user's manifest beside that of another one.
fn own_name() -> String {
    format!("{MANIFEST}-{}", rustix::process::geteuid().as_raw())
}

impl<D: Directory> Manifest<D> {
    /// Reads the manifest of a directory. A missing manifest counts as an empty one.
    pub fn load(dir: &D) -> Result<Self, ManifestError> {
        match Self::load_from(dir, MANIFEST.to_owned()) {
            Err(error) if error.is_of_another_user() => Self::load_own(dir),
            loaded => loaded,
        }
    }

    /// Reads the manifest that this user has beside that of another one.
    fn load_own(dir: &D) -> Result<Self, ManifestError> {
        Self::load_from(dir, own_name())
    }

    fn load_from(dir: &D, name: String) -> Result<Self, ManifestError> {
        let opened = dir.open(name.as_bytes(), OpenMode::Read);
        let contents = match opened.map_err(at(&name))? {
            Some(file) => with_action("read", Contents::read(&file))?,
            None => Contents::default(),
        };
        Ok(Self {
            dir: dir.clone(),
            name,
            contents,
        })
    }

    /// Entry of a file.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<&FileRecord> {
        self.contents.records.get(path)
    }

    /// Entries of all files, in the order of their paths' bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &FileRecord)> {
        let records = self.contents.records.iter();
        records.map(|(path, record)| (path.as_slice(), record))
    }

    /// Lines that were ignored when the manifest was loaded.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.contents.ignored
    }

    /// Appends entries, durably.
    pub fn append(&mut self, batch: &[(&[u8], FileRecord)]) -> Result<(), ManifestError> {
        if batch.is_empty() {
            return Ok(());
        }
        let file = self.open_locked()?;
        let mut text = with_action("read", start_of_line(&file))?.to_owned();
        text.extend(batch.iter().map(|(path, record)| line(path, record)));
        with_action("add to", file.append(text.as_bytes()))?;
        with_action("make durable", file.sync_data())?;
        with_action("make durable the name of", self.dir.sync())?;
        for (path, record) in batch {
            self.contents.apply(path.to_vec(), *record);
        }
        Ok(())
    }

    /// Rewrites a manifest of more than 1 MiB if more than half of its lines are outdated. Returns
    /// whether it did. Entries that other processes appended are kept, and known afterwards.
    pub fn compact(&mut self) -> Result<bool, ManifestError> {
        self.compact_from(COMPACT_MIN)
    }

    pub(crate) fn compact_from(&mut self, min: u64) -> Result<bool, ManifestError> {
        if self.contents.is_mostly_live() {
            return Ok(false);
        }
        let file = self.open_locked()?;
        if with_action("read the size of", file.len())? <= min {
            return Ok(false);
        }
        let mut contents = with_action("read", Contents::read(&file))?;
        let worthwhile = !contents.is_mostly_live();
        if worthwhile {
            self.replace(&contents)?;
            contents.lines = contents.records.len() as u64;
        }
        self.contents = contents;
        Ok(worthwhile)
    }

    /// Opens and locks the file that has the manifest's name, or changes to a manifest of this user's own. Its name
    /// becomes durable only when the directory is synced, even if the file existed: the process that created it may
    /// have died.
    fn open_locked(&mut self) -> Result<D::File, ManifestError> {
        let open = |of: &Self| of.dir.open(of.name.as_bytes(), OpenMode::CreateAndWait);
        let mut opened = open(self);
        if self.name == MANIFEST && opened.as_ref().is_err_and(is_of_another_user) {
            *self = Self::load_own(&self.dir)?;
            opened = open(self);
        }
        let file = opened.map_err(at(&self.name))?;
        with_action("create", file.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// Replaces the manifest. The directory need not be synced: the former file has the same
    /// entries, and the next process that appends to this one syncs it.
    fn replace(&self, contents: &Contents) -> Result<(), ManifestError> {
        let dir = &self.dir;
        let replacement = format!("{}.new", self.name);
        let opened = dir.open(replacement.as_bytes(), OpenMode::CreateAndWait);
        let file = opened.map_err(at(&replacement))?;
        let file = with_action("create a new", file.ok_or(io::ErrorKind::NotFound.into()))?;
        with_action("write a new", contents.write(&file))?;
        with_action("make durable a new", file.sync_all())?;
        let renamed = dir.rename(replacement.as_bytes(), self.name.as_bytes());
        with_action("replace", renamed)
    }
}

fn with_action<T>(action: &'static str, done: io::Result<T>) -> Result<T, ManifestError> {
    done.map_err(|source| ManifestError::Io { action, source })
}

/// Text to write before a new line: a line break if the last line was torn.
fn start_of_line(file: &impl FileOps) -> io::Result<&'static str> {
    let Some(last) = file.len()?.checked_sub(1) else {
        return Ok("");
    };
    let mut byte = [0];
    file.read_at(&mut byte, last)?;
    Ok(if byte == *b"\n" { "" } else { "\n" })
}

impl Contents {
    fn read(file: &impl FileOps) -> io::Result<Self> {
        let mut contents = Self::default();
        let (mut chunk, mut partial_line, mut offset) = (vec![0; CHUNK_LEN], Vec::new(), 0);
        loop {
            let read = file.read_at(&mut chunk, offset)?;
            offset += read as u64;
            contents.parse(&chunk[..read], &mut partial_line);
            if read < CHUNK_LEN {
                contents.parse_end(&partial_line);
                return Ok(contents);
            }
        }
    }

    /// Parses the lines in a chunk. `partial_line` carries an unfinished line from chunk to chunk.
    fn parse(&mut self, chunk: &[u8], partial_line: &mut Vec<u8>) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let space = (LINE_LEN_MAX + 1).saturating_sub(partial_line.len());
            partial_line.extend_from_slice(&part[..part.len().min(space)]);
            if part.ends_with(b"\n") {
                self.parse_line(partial_line.strip_suffix(b"\n").unwrap_or(partial_line));
                partial_line.clear();
            }
        }
    }

    fn parse_end(&mut self, partial_line: &[u8]) {
        if !partial_line.is_empty() {
            self.parse_line(partial_line);
        }
    }

    fn parse_line(&mut self, line: &[u8]) {
        match parse(line) {
            Some((path, record)) => self.apply(path, record),
            None => {
                self.lines += 1;
                self.ignored += 1;
            }
        }
    }

    fn apply(&mut self, path: Vec<u8>, record: FileRecord) {
        self.lines += 1;
        if record.hash == FileRecord::REMOVED.hash {
            self.records.remove(&path)
        } else {
            self.records.insert(path, record)
        };
    }

    fn is_mostly_live(&self) -> bool {
        self.records.len() as u64 * 2 >= self.lines
    }

    fn write(&self, file: &impl FileOps) -> io::Result<()> {
        file.set_len(0)?;
        let mut text = String::new();
        for (path, record) in &self.records {
            text += &line(path, record);
            if text.len() >= CHUNK_LEN {
                file.append(text.as_bytes())?;
                text.clear();
            }
        }
        file.append(text.as_bytes())
    }
}

fn line(path: &[u8], record: &FileRecord) -> String {
    let FileRecord { hash, size, mtime } = record;
    let (seconds, nanoseconds) = mtime;
    let path = Escaped(path);
    let line = format!("{hash} {size} {seconds}.{nanoseconds:09} {path}");
    format!("{line} {}\n", check(line.as_bytes()))
}

fn check(line: &[u8]) -> String {
    let hash = blake3::Hash::from_bytes(blake3::derive_key(CHECK_CONTEXT, line));
    hash.to_hex()[..16].to_owned()
}

/// Parses a line; `None` if another program wrote it, or it is damaged.
pub fn parse(line: &[u8]) -> Option<(Vec<u8>, FileRecord)> {
    let (checked, sum) = line.split_at(line.len().checked_sub(17)?);
    if sum != format!(" {}", check(checked)).as_bytes() {
        return None;
    }
    let mut fields = checked.splitn(4, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let hash = text()?.parse().ok()?;
    let size = text()?.parse().ok()?;
    let mtime = parse_time(text()?)?;
    let path = unescape(fields.next()?)?;
    Some((path, FileRecord { hash, size, mtime }))
}

fn parse_time(text: &str) -> Option<(i64, u32)> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

#[cfg(test)]
mod tests;
