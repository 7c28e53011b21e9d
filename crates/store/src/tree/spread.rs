// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records, in a directory, the trees of which this host has a share because they were spread over
//! several hosts. A gather uses the records to detect hosts that the user did not name. Small files
//! on other hosts leave no other trace here.
//!
//! The record is `.longhaul-spread` in the directory that was copied into: a format number and a
//! [`TreeShare`] for each tree as postcard, and the BLAKE3 of both. A newer share of the same tree
//! from the same source replaces the older one.

use crate::{
    path::RelPath,
    tree::origin::SourceId,
    vfs::{Dir, Directory, FileOps, OpenError, OpenMode},
};
use rustix::{
    fd::AsFd,
    fs::{Mode, OFlags},
};
use serde::{Deserialize, Serialize};
use std::{io, path::Path};

/// Name of the record.
pub const SPREAD_FILE: &str = ".longhaul-spread";

/// Maximum bytes in a record: the memory needed to read it. A share with 100 hosts takes some 2 KB.
pub const LEN_MAX: usize = 1 << 20;

const FORMAT: u32 = 1;

/// Share that one host has of one tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeShare {
    /// Source of the tree.
    pub origin: SourceId,
    /// Name of the tree in the directory; `None` if the directory itself is the tree.
    pub top: Option<RelPath>,
    /// Number of this host, from 0.
    pub rank: u16,
    /// Names of all hosts that the tree was spread over, at that time.
    pub hosts: Vec<String>,
}

/// Reason why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpreadError {
    /// The record cannot be opened, read or written.
    #[error("{SPREAD_FILE}: {0}")]
    Open(#[from] OpenError),
    /// The bytes are damaged.
    #[error(
        "{SPREAD_FILE}: damaged, or written by a later version; remove it; a copy with the same --distributed target records it again"
    )]
    Damaged,
    /// The record is longer than [`LEN_MAX`].
    #[error(
        "{SPREAD_FILE}: too many trees were distributed here; remove it if they are not needed any more"
    )]
    TooLong,
}

impl From<io::Error> for SpreadError {
    fn from(error: io::Error) -> Self {
        Self::Open(error.into())
    }
}

/// Adds shares to the record of a directory, durably.
///
/// # Errors
/// The record cannot be read or written, or becomes too long.
pub fn record<D: Directory>(dir: &D, shares: &[TreeShare]) -> Result<(), SpreadError> {
    let before = read(dir)?;
    let is_kept = |old: &TreeShare| {
        let same = |new: &TreeShare| (&new.origin, &new.top) == (&old.origin, &old.top);
        !shares.iter().any(same)
    };
    let kept = before.iter().filter(|old| is_kept(old));
    let all: Vec<&TreeShare> = kept.chain(shares).collect();
    if all.iter().copied().eq(&before) {
        return Ok(());
    }
    let bytes = encode(&all)?;
    // Written to a temporary file and renamed: a kill leaves the former record or the new one.
    let temporary = format!("{SPREAD_FILE}.new");
    let file = dir.open(temporary.as_bytes(), OpenMode::CreateAndWait)?;
    let file = file.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync_all()?;
    dir.rename(temporary.as_bytes(), SPREAD_FILE.as_bytes())?;
    Ok(dir.sync()?)
}

/// Reads the record of a directory.
///
/// # Errors
/// The record cannot be read.
pub fn read<D: Directory>(dir: &D) -> Result<Vec<TreeShare>, SpreadError> {
    let Some(file) = dir.open(SPREAD_FILE.as_bytes(), OpenMode::Read)? else {
        return Ok(Vec::new());
    };
    if file.len()? > LEN_MAX as u64 {
        return Err(SpreadError::TooLong);
    }
    let mut bytes = vec![0; file.len()? as usize];
    let read = file.read_at(&mut bytes, 0)?;
    decode(&bytes[..read]).ok_or(SpreadError::Damaged)
}

/// Reads the shares of the tree at `path`, which has no symbolic links, from the directory itself
/// and its ancestors up to `top`. Each share is named as in a copy of the tree's contents.
///
/// # Errors
/// A record exists but cannot be read.
pub fn shares_of_tree(path: &Path, top: &Path) -> Result<Vec<TreeShare>, SpreadError> {
    let mut found = Vec::new();
    for dir in path.ancestors().filter(|dir| dir.starts_with(top)) {
        // A directory that cannot be opened has no record. O_DIRECTORY refuses other entries:
        // opening a fifo would block.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(open) = rustix::fs::open(dir, flags, Mode::empty()) else {
            continue;
        };
        let Ok(below) = path.strip_prefix(dir) else {
            continue;
        };
        let first = below.iter().next().map(AsRef::<Path>::as_ref);
        let shares = read(&Dir::new(open.as_fd())?)?.into_iter();
        found.extend(shares.filter_map(|share| match (first, &share.top) {
            (None, _) => Some(share),
            (Some(first), Some(top)) if top.as_path() != first => None,
            (Some(_), _) => Some(TreeShare { top: None, ..share }),
        }));
    }
    Ok(found)
}

fn encode(shares: &[&TreeShare]) -> Result<Vec<u8>, SpreadError> {
    let bytes = postcard::to_stdvec(&(FORMAT, shares));
    let mut bytes = bytes.map_err(|_| SpreadError::Damaged)?;
    let check = blake3::hash(&bytes);
    bytes.extend(check.as_bytes());
    if bytes.len() <= LEN_MAX {
        Ok(bytes)
    } else {
        Err(SpreadError::TooLong)
    }
}

fn decode(bytes: &[u8]) -> Option<Vec<TreeShare>> {
    let (bytes, check) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(bytes).as_bytes() != check {
        return None;
    }
    let (format, rest) = postcard::take_from_bytes::<u32>(bytes).ok()?;
    match (format, postcard::take_from_bytes(rest)) {
        (FORMAT, Ok((shares, []))) => Some(shares),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::simulated::{SimRng, SimulatedDisk};
    use std::fs::{self, File};

    fn share(origin: u8, top: &str, rank: u16, hosts: &[&str]) -> TreeShare {
        TreeShare {
            origin: [origin; 32],
            top: RelPath::parse(top.as_bytes()).ok(),
            rank,
            hosts: hosts.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn last_share_of_a_tree_wins_and_survives_power_loss() {
        let disk = SimulatedDisk::default();
        let dir = disk.directory();
        assert_eq!(read(&dir).unwrap(), []);
        let [a, b] = [share(1, "a", 0, &["x", "y"]), share(1, "b", 0, &["x", "y"])];
        record(&dir, &[a.clone(), b.clone()]).unwrap();
        let again = share(1, "a", 2, &["x", "y", "z"]);
        record(&dir, std::slice::from_ref(&again)).unwrap();
        let other = share(2, "a", 0, &["x", "y"]);
        record(&dir, std::slice::from_ref(&other)).unwrap();
        disk.crash(&mut SimRng(1));
        assert_eq!(read(&dir).unwrap(), [b, again, other]);
    }

    #[test]
    fn rejects_damaged_or_too_long_records() {
        let dir = SimulatedDisk::default().directory();
        record(&dir, &[share(1, "a", 0, &["x"])]).unwrap();
        let file = dir
            .open(SPREAD_FILE.as_bytes(), OpenMode::CreateExclusive)
            .unwrap()
            .unwrap();
        file.write_at(b"?", 5).unwrap();
        assert!(matches!(read(&dir), Err(SpreadError::Damaged)));
        let dir = SimulatedDisk::default().directory();
        let long = "x".repeat(LEN_MAX);
        let result = record(&dir, &[share(1, "a", 0, &[&long])]);
        assert!(matches!(result, Err(SpreadError::TooLong)));
        assert_eq!(read(&dir).unwrap(), []);
    }

    #[test]
    fn reads_shares_from_the_tree_and_its_ancestors() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let run = top.join("run/deep");
        fs::create_dir_all(&run).unwrap();
        let put = |path: &Path, shares: &[TreeShare]| {
            let dir = Dir::new(File::open(path).unwrap().as_fd()).unwrap();
            record(&dir, shares).unwrap();
        };
        let hosts = ["x", "y"];
        put(
            &top,
            &[share(1, "run", 0, &hosts), share(1, "other", 0, &hosts)],
        );
        put(&top.join("run"), &[share(2, "", 1, &hosts)]);
        let of = |path: &Path, top: &Path| -> Vec<(u8, Option<RelPath>)> {
            let shares = shares_of_tree(path, top).unwrap().into_iter();
            shares.map(|share| (share.origin[0], share.top)).collect()
        };
        assert_eq!(of(&run, &top), [(2, None), (1, None)]);
        assert_eq!(
            of(&run, &top.join("run")),
            [(2, None)],
            "no further than an export"
        );
        assert_eq!(of(&top.join("none"), &top), []);
        assert_eq!(of(&top, &top).len(), 2);
    }
}
