// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of what is complete: `.longhaul-manifest`, a line of text for each finished file.
//!
//! `HASH SIZE MTIME PATH CHECK`, divided by single spaces: BLAKE3 of the file in hexadecimal, its
//! bytes, when it changed (seconds since 1970, a point, nine digits), its path (which may have
//! spaces; what is not printable as `\xNN`, a backslash as two), and a check, 16 hexadecimal
//! digits of the BLAKE3 of the line before it. The last line of a path is the one that counts; one with a hash of zeros
//! says that nothing is known any more ([`Record::GONE`]). A line that was
//! torn by a crash, or is somebody else's, is passed over.
//!
//! It is for all who may write in its directory: its group and its rights to read and write are the directory's.
//! Several processes may add lines at once, under the lock of the file. Who waited for the lock
//! opens the file again if it was replaced meanwhile, and who replaces it has the lock.

use crate::{
    blocks::FileHash,
    escape::{Escaped, unescape},
    medium::{Dir, Directory, How, Medium, OpenError},
};
use std::{collections::BTreeMap, io};

/// The manifest's name.
pub const MANIFEST: &str = ".longhaul-manifest";
const REPLACEMENT: &str = ".longhaul-manifest.new";

/// The shortest manifest, in bytes, that is worth the work of replacing it.
const COMPACT_MIN: u64 = 1 << 20;

/// Bytes that are read or written at once: 1 MiB of memory.
const PIECE: usize = 1 << 20;

/// The longest line, in bytes: a path of 4096, each of them escaped, and the rest. Of a longer one
/// no more is kept in memory.
const LINE_LEN_MAX: usize = 4 * 4096 + 256;

const CHECK_CONTEXT: &str = "longhaul 2026 manifest line";

/// What is known of a finished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// BLAKE3 of its bytes.
    pub hash: FileHash,
    /// How many they are.
    pub size: u64,
    /// When it changed, in seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
}

impl Record {
    /// Nothing is known any more of what was there: it was removed, or is another that nobody hashed. No bytes that
    /// anybody finds have this hash.
    pub const GONE: Self = Self {
        hash: FileHash([0; 32]),
        size: 0,
        mtime: (0, 0),
    };
}

/// Why the manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Something else is in its place, or it cannot be read.
    #[error("cannot open {MANIFEST}: {0}")]
    Open(#[from] OpenError),
    /// The system refused something.
    #[error("cannot {action} {MANIFEST}: {source}")]
    Io {
        /// What could not be done.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// The manifest of a directory, as it was when it was loaded and with what was added since by this
/// process. It is kept in memory: about 120 bytes and its path a file.
pub struct Manifest<D: Directory = Dir> {
    dir: D,
    contents: Contents,
}

#[derive(Debug, Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, Record>,
    lines: u64,
    ignored: u64,
}

impl<D: Directory> Manifest<D> {
    /// Reads the manifest of a directory. None is as good as an empty one.
    pub fn load(dir: &D) -> Result<Self, ManifestError> {
        let contents = match dir.open(MANIFEST.as_bytes(), How::Read)? {
            Some(file) => doing("read", Contents::read(&file))?,
            None => Contents::default(),
        };
        Ok(Self {
            dir: dir.clone(),
            contents,
        })
    }

    /// What is known of a file.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<&Record> {
        self.contents.records.get(path)
    }

    /// All files, in the order of their paths' bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Record)> {
        let records = self.contents.records.iter();
        records.map(|(path, record)| (path.as_slice(), record))
    }

    /// Lines that were passed over when it was loaded.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.contents.ignored
    }

    /// Adds files, durably.
    pub fn append(&mut self, batch: &[(&[u8], Record)]) -> Result<(), ManifestError> {
        if batch.is_empty() {
            return Ok(());
        }
        let file = self.locked()?;
        let mut text = doing("read", start_of_line(&file))?.to_owned();
        text.extend(batch.iter().map(|(path, record)| line(path, record)));
        doing("add to", file.append(text.as_bytes()))?;
        doing("make durable", file.sync_data())?;
        doing("make durable the name of", self.dir.sync())?;
        for (path, record) in batch {
            self.contents.take(path.to_vec(), *record);
        }
        Ok(())
    }

    /// Replaces a manifest of more than 1 MiB, of which more than half is outdated, by what counts
    /// of it; whether it did. What others added is kept, and known afterwards.
    pub fn compact(&mut self) -> Result<bool, ManifestError> {
        self.compact_from(COMPACT_MIN)
    }

    pub(crate) fn compact_from(&mut self, min: u64) -> Result<bool, ManifestError> {
        if self.contents.is_mostly_live() {
            return Ok(false);
        }
        let file = self.locked()?;
        if doing("look at", file.len())? <= min {
            return Ok(false);
        }
        let mut contents = doing("read", Contents::read(&file))?;
        let worthwhile = !contents.is_mostly_live();
        if worthwhile {
            self.replace(&contents)?;
            contents.lines = contents.records.len() as u64;
        }
        self.contents = contents;
        Ok(worthwhile)
    }

    /// The file that has the name, locked. It is durable by that name only after the directory is
    /// synced, even if it was there: whoever put it there may have died.
    fn locked(&self) -> Result<D::File, ManifestError> {
        let file = self.dir.open(MANIFEST.as_bytes(), How::MakeAndWait)?;
        doing("make", file.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// The directory need not be synced: the former file says the same, and who adds to this one
    /// syncs it.
    fn replace(&self, contents: &Contents) -> Result<(), ManifestError> {
        let dir = &self.dir;
        let file = dir.open(REPLACEMENT.as_bytes(), How::MakeAndWait)?;
        let file = doing("make another", file.ok_or(io::ErrorKind::NotFound.into()))?;
        doing("write another", contents.write(&file))?;
        doing("make durable another", file.sync_all())?;
        let renamed = dir.rename(REPLACEMENT.as_bytes(), MANIFEST.as_bytes());
        doing("replace", renamed)
    }
}

fn doing<T>(action: &'static str, done: io::Result<T>) -> Result<T, ManifestError> {
    done.map_err(|source| ManifestError::Io { action, source })
}

/// What has to come before a line: an end for one that was torn.
fn start_of_line(file: &impl Medium) -> io::Result<&'static str> {
    let Some(last) = file.len()?.checked_sub(1) else {
        return Ok("");
    };
    let mut byte = [0];
    file.read_at(&mut byte, last)?;
    Ok(if byte == *b"\n" { "" } else { "\n" })
}

impl Contents {
    fn read(file: &impl Medium) -> io::Result<Self> {
        let mut contents = Self::default();
        let (mut piece, mut begun, mut offset) = (vec![0; PIECE], Vec::new(), 0);
        loop {
            let read = file.read_at(&mut piece, offset)?;
            offset += read as u64;
            contents.parse(&piece[..read], &mut begun);
            if read < PIECE {
                contents.parse_end(&begun);
                return Ok(contents);
            }
        }
    }

    /// Takes the lines of a piece; `begun` is the one that goes on from piece to piece.
    fn parse(&mut self, piece: &[u8], begun: &mut Vec<u8>) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let room = (LINE_LEN_MAX + 1).saturating_sub(begun.len());
            begun.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.parse_line(begun.strip_suffix(b"\n").unwrap_or(begun));
                begun.clear();
            }
        }
    }

    fn parse_end(&mut self, begun: &[u8]) {
        if !begun.is_empty() {
            self.parse_line(begun);
        }
    }

    fn parse_line(&mut self, line: &[u8]) {
        match parse(line) {
            Some((path, record)) => self.take(path, record),
            None => {
                self.lines += 1;
                self.ignored += 1;
            }
        }
    }

    fn take(&mut self, path: Vec<u8>, record: Record) {
        self.lines += 1;
        match record.hash == Record::GONE.hash {
            true => self.records.remove(&path),
            false => self.records.insert(path, record),
        };
    }

    fn is_mostly_live(&self) -> bool {
        self.records.len() as u64 * 2 >= self.lines
    }

    fn write(&self, file: &impl Medium) -> io::Result<()> {
        file.set_len(0)?;
        let mut text = String::new();
        for (path, record) in &self.records {
            text += &line(path, record);
            if text.len() >= PIECE {
                file.append(text.as_bytes())?;
                text.clear();
            }
        }
        file.append(text.as_bytes())
    }
}

fn line(path: &[u8], record: &Record) -> String {
    let Record { hash, size, mtime } = record;
    let (seconds, nanoseconds) = mtime;
    let path = Escaped(path);
    let line = format!("{hash} {size} {seconds}.{nanoseconds:09} {path}");
    format!("{line} {}\n", check(line.as_bytes()))
}

fn check(line: &[u8]) -> String {
    let hash = blake3::Hash::from_bytes(blake3::derive_key(CHECK_CONTEXT, line));
    hash.to_hex()[..16].to_owned()
}

/// What a line says; `None` if it is not one of ours, or not whole.
pub fn parse(line: &[u8]) -> Option<(Vec<u8>, Record)> {
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
    Some((path, Record { hash, size, mtime }))
}

fn parse_time(text: &str) -> Option<(i64, u32)> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

#[cfg(test)]
mod tests;
