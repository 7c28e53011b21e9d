// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records which directory is the copy of which source. `SRC`, copied to a name that does not
//! exist, becomes a directory of that name. When the command is repeated, the directory exists, and
//! a copy would go into it. The record tells the two cases apart, so that the repeated command does
//! the same.
//!
//! The record of the directory NAME is the file `.longhaul-HASH.origin` beside it. It has the
//! source (32 bytes, chosen by the caller), the directory's inode number (8, big-endian) and its
//! birth (16). File systems reuse inode numbers after `rm -r`, so the number alone could match
//! another directory. The birth is the time when the directory was created (seconds and
//! nanoseconds, 8 bytes each, big-endian). On file systems without birth times (ext3, NFSv3, FUSE) the
//! birth is 16 random bytes, which are also in `.longhaul-identity` in the directory, and the number is 0. HASH is as in
//! [`crate::part`].

use crate::{
    path::{RelPath, internal_name},
    root::{Failure, Root},
    vfs::{Dir, Directory, FileOps, OpenError, OpenMode},
};
use rustix::{
    fd::AsFd,
    fs::{AtFlags, StatxFlags},
};
use std::{
    fs::File,
    io::{self, Read as _},
};

/// File with 16 random bytes, in a directory whose file system has no birth times.
const IDENTITY: &[u8] = b".longhaul-identity";

/// Bytes in a birth.
const BIRTH_LEN: usize = 16;

/// Bytes in a record.
const RECORD_LEN: usize = 40 + BIRTH_LEN;

/// Source of a copy: a digest chosen by the caller.
pub type SourceId = [u8; 32];

/// Identity of a directory. Distinguishes it from all others that ever have its name or its inode
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    birth: [u8; BIRTH_LEN],
}

/// Reason why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// The directory cannot be opened, created or renamed.
    #[error(transparent)]
    Directory(#[from] Failure),
    /// The record or the identity cannot be read or written.
    #[error(transparent)]
    Record(#[from] OpenError),
}

impl From<io::Error> for OriginError {
    fn from(error: io::Error) -> Self {
        Self::Record(error.into())
    }
}

/// Creates the directory `path` as the copy of `origin`, durably, for this user only. The record is
/// written before the directory gets its name. So a directory that another program creates under
/// the name after a crash does not count as the copy.
///
/// # Errors
/// The system's error, also if the name now belongs to an entry other than an empty directory.
pub fn make(root: &Root, path: &RelPath, origin: &SourceId) -> Result<(), OriginError> {
    let dir = parent_dir(root, path)?;
    let temporary = temporary_path(path).map_err(Failure::from)?;
    // An earlier run was killed before it renamed its directory.
    let _ = temporary
        .join(IDENTITY)
        .map(|identity| root.remove(&identity));
    let _ = root.remove_dir(&temporary);
    root.make_dir(&temporary)?;
    let identity = read_identity(root, &temporary, IfMissing::Create)?;
    write(&dir, path.name(), &identity, origin)?;
    root.rename(&temporary, path)?;
    Ok(dir.sync()?)
}

/// Records durably that the existing directory `path` is the copy of `origin`.
///
/// # Errors
/// The system's error.
pub fn record(root: &Root, path: &RelPath, origin: &SourceId) -> Result<(), OriginError> {
    let identity = read_identity(root, path, IfMissing::Create)?;
    Ok(write(
        &parent_dir(root, path)?,
        path.name(),
        &identity,
        origin,
    )?)
}

/// Whether the directory `path` is recorded as the copy of `origin`.
///
/// # Errors
/// The directory cannot be opened, or the record is not a regular file or cannot be read.
pub fn is_copy(root: &Root, path: &RelPath, origin: &SourceId) -> Result<bool, OriginError> {
    let identity = read_identity(root, path, IfMissing::Zeros)?;
    Ok(is_recorded(
        &parent_dir(root, path)?,
        path.name(),
        &identity,
        origin,
    )?)
}

fn parent_dir(root: &Root, path: &RelPath) -> Result<Dir, OriginError> {
    let dir = root.open_dir_to_write(path.parent().as_ref())?;
    Ok(Dir::new(dir.as_fd())?)
}

fn temporary_path(path: &RelPath) -> Result<RelPath, crate::path::BadPath> {
    let name = internal_name(path.name(), "new");
    path.parent()
        .map_or_else(|| RelPath::parse(&name), |dir| dir.join(&name))
}

/// Handling of a missing identity file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    /// The file is created.
    Create,
    /// The birth is zeros, which are never recorded.
    Zeros,
}

fn read_identity(root: &Root, path: &RelPath, missing: IfMissing) -> Result<Identity, OriginError> {
    let (dir, name) = root.dir_and_name(path)?;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted);
    let stat = stat.map_err(Failure::at(Some(path), "access"))?;
    Ok(if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        let time = stat.stx_btime;
        let birth = u128::from(time.tv_sec as u64) << 64 | u128::from(time.tv_nsec);
        Identity {
            inode: stat.stx_ino,
            birth: birth.to_be_bytes(),
        }
    } else {
        Identity {
            inode: 0,
            birth: random_birth(&Dir::new(root.open_dir(Some(path))?.as_fd())?, missing)?,
        }
    })
}

/// Returns the random bytes in the identity file.
fn random_birth<D: Directory>(dir: &D, missing: IfMissing) -> Result<[u8; BIRTH_LEN], OpenError> {
    let mut birth = [0; BIRTH_LEN];
    if let Some(file) = dir.open(IDENTITY, OpenMode::Read)?
        && file.read_at(&mut birth, 0)? == BIRTH_LEN
    {
        return Ok(birth);
    }
    if missing == IfMissing::Zeros {
        return Ok([0; BIRTH_LEN]);
    }
    File::open("/dev/urandom")?.read_exact(&mut birth)?;
    write_durably(dir, IDENTITY, &birth)?;
    Ok(birth)
}

fn write<D: Directory>(
    dir: &D,
    name: &[u8],
    identity: &Identity,
    origin: &SourceId,
) -> Result<(), OpenError> {
    if is_recorded(dir, name, identity, origin)? {
        Ok(())
    } else {
        write_durably(dir, &record_name(name), &encode(identity, origin))
    }
}

/// Writes a file durably. Once the file exists, it never becomes empty again, because another copy may read it at any
/// moment.
fn write_durably<D: Directory>(dir: &D, internal: &[u8], bytes: &[u8]) -> Result<(), OpenError> {
    let file = dir.open(internal, OpenMode::CreateAndWait)?;
    let file = file.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    file.write_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()?;
    Ok(dir.sync()?)
}

fn is_recorded<D: Directory>(
    dir: &D,
    name: &[u8],
    identity: &Identity,
    origin: &SourceId,
) -> Result<bool, OpenError> {
    let mut stored = vec![0; RECORD_LEN + 1];
    let length = match dir.open(&record_name(name), OpenMode::Read)? {
        Some(file) => file.read_at(&mut stored, 0)?,
        None => 0,
    };
    Ok(stored[..length] == encode(identity, origin))
}

fn record_name(name: &[u8]) -> Vec<u8> {
    internal_name(name, "origin")
}

fn encode(identity: &Identity, origin: &SourceId) -> [u8; RECORD_LEN] {
    let mut bytes = [0; RECORD_LEN];
    bytes[..32].copy_from_slice(origin);
    bytes[32..40].copy_from_slice(&identity.inode.to_be_bytes());
    bytes[40..].copy_from_slice(&identity.birth);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::simulated::{SimRng, SimulatedDisk};
    use std::fs;

    fn identity(inode: u64, birth: u8) -> Identity {
        Identity {
            inode,
            birth: [birth; BIRTH_LEN],
        }
    }

    #[test]
    fn matches_only_the_recorded_origin_and_identity() {
        let dir = SimulatedDisk::default().directory();
        let is = |name: &[u8], identity, origin| {
            is_recorded(&dir, name, &identity, &[origin; 32]).unwrap()
        };
        assert!(!is(b"a", identity(7, 1), 1));
        write(&dir, b"a", &identity(7, 1), &[1; 32]).unwrap();
        assert!(is(b"a", identity(7, 1), 1));
        assert!(!is(b"a", identity(8, 1), 1), "another number");
        assert!(!is(b"a", identity(7, 2), 1), "the same number, born later");
        assert!(!is(b"a", identity(7, 1), 2) && !is(b"b", identity(7, 1), 1));
        write(&dir, b"a", &identity(9, 1), &[2; 32]).unwrap();
        assert!(is(b"a", identity(9, 1), 2) && !is(b"a", identity(7, 1), 1));
    }

    #[test]
    fn record_survives_power_loss() {
        let disk = SimulatedDisk::default();
        let dir = disk.directory();
        write(&dir, b"a", &identity(7, 1), &[1; 32]).unwrap();
        disk.crash(&mut SimRng(1));
        assert!(is_recorded(&dir, b"a", &identity(7, 1), &[1; 32]).unwrap());
    }

    #[test]
    fn creates_random_birth_once_and_only_for_a_record() {
        let dir = SimulatedDisk::default().directory();
        assert_eq!(
            random_birth(&dir, IfMissing::Zeros).unwrap(),
            [0; BIRTH_LEN]
        );
        let made = random_birth(&dir, IfMissing::Create).unwrap();
        assert_ne!(made, [0; BIRTH_LEN]);
        assert_eq!(random_birth(&dir, IfMissing::Zeros).unwrap(), made);
        assert_eq!(random_birth(&dir, IfMissing::Create).unwrap(), made);
    }

    #[test]
    fn creates_a_directory_with_its_record_and_never_over_another() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let path = RelPath::parse(b"a").unwrap();
        make(&root, &path, &[1; 32]).unwrap();
        assert!(is_copy(&root, &path, &[1; 32]).unwrap());
        fs::rename(temp.path().join("a"), temp.path().join("b")).unwrap();
        fs::create_dir_all(temp.path().join("a/precious")).unwrap();
        assert!(!is_copy(&root, &path, &[1; 32]).unwrap());
        assert!(make(&root, &path, &[1; 32]).is_err());
        assert!(!is_copy(&root, &path, &[1; 32]).unwrap());
        record(&root, &path, &[1; 32]).unwrap();
        assert!(is_copy(&root, &path, &[1; 32]).unwrap());
    }

    /// A run was killed between the record and the rename.
    #[test]
    fn replaces_leftovers_of_a_killed_run() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let path = RelPath::parse(b"a").unwrap();
        let left = temp.path().join(temporary_path(&path).unwrap().as_path());
        fs::create_dir(&left).unwrap();
        fs::write(left.join(".longhaul-identity"), "x").unwrap();
        make(&root, &path, &[1; 32]).unwrap();
        assert!(is_copy(&root, &path, &[1; 32]).unwrap());
        let names = fs::read_dir(temp.path()).unwrap().count();
        assert_eq!(names, 2, "the directory and its record");
    }
}
