// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small files: files of at most one block, written whole and made durable in batches.
//!
//! Making a file durable takes a disk milliseconds, whatever the length. A batch needs few such
//! waits: one for the whole file system, or one for each of a few files, and then one for each
//! directory. Until it has its name, such a file is `.longhaul-HASH.whole`. It has no journal.

use crate::{
    blocks::FileHash,
    part::{PartError, PartPaths},
    vfs::{
        Dir, Directory, FileOps,
        sparse::{Run, runs},
    },
};
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    io,
};

/// Suitable number of files in a batch. Each holds a descriptor, and no bytes.
pub const BATCH_MAX: usize = 256;

/// Largest batch whose files are synced one by one. For a larger batch the whole file system is
/// synced, with all other data waiting to be written there.
const SYNC_EACH_MAX: usize = 8;

/// File that is written but does not have its name yet. If it never gets it, it is removed.
pub struct SmallFile<D: Directory = Dir> {
    paths: PartPaths<D>,
    file: D::File,
    hash: Option<FileHash>,
    has_its_name: Cell<bool>,
}

impl<D: Directory> SmallFile<D> {
    /// Writes a file of these bytes, if they have the expected hash. `prepare` sets its metadata.
    /// Without a hash the bytes are not checked. A `sparse` file gets holes for its zeros.
    /// [`commit`] gives the file its name.
    pub fn write(
        dir: &D,
        name: &[u8],
        bytes: &[u8],
        expected: Option<FileHash>,
        sparse: bool,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<Self, PartError> {
        let paths = PartPaths::new(dir, name)?;
        if let Some(expected) = expected {
            check(&paths, bytes, expected)?;
        }
        let file = paths.create_whole()?;
        let small = Self {
            paths,
            file,
            hash: expected,
            has_its_name: Cell::new(false),
        };
        small.fill(bytes, sparse)?;
        let prepared = prepare(&small.file);
        small.paths.io_context("set its metadata", prepared)?;
        Ok(small)
    }

    fn fill(&self, bytes: &[u8], sparse: bool) -> Result<(), PartError> {
        let written = if sparse {
            write_sparse(&self.file, bytes)
        } else {
            self.file.write_at(bytes, 0)
        };
        written.map_err(|source| PartError::Write {
            name: self.paths.display_name(),
            offset: 0,
            source,
        })
    }

    fn sync(&self) -> Result<(), PartError> {
        self.paths
            .io_context("make it durable", self.file.sync_all())
    }
}

impl<D: Directory> Drop for SmallFile<D> {
    /// The file is still locked, so no other copy has replaced it.
    fn drop(&mut self) {
        if !self.has_its_name.get() {
            // If this fails, the next write replaces it.
            let _ = self.paths.dir.remove(&self.paths.whole);
        }
    }
}

fn write_sparse(file: &impl FileOps, bytes: &[u8]) -> io::Result<()> {
    file.set_len(bytes.len() as u64)?;
    runs(bytes).try_for_each(|run| match run {
        Run::Zeros(_) => Ok(()),
        Run::Data(range) => file.write_at(&bytes[range.clone()], range.start as u64),
    })
}

fn check<D: Directory>(
    paths: &PartPaths<D>,
    bytes: &[u8],
    expected: FileHash,
) -> Result<(), PartError> {
    let got = FileHash(*blake3::hash(bytes).as_bytes());
    if got == expected {
        Ok(())
    } else {
        Err(PartError::Mismatch {
            name: paths.display_name(),
            expected,
            got,
        })
    }
}

/// Makes files durable, each under its name. Returns for each, in order, its hash if it has one, or
/// the error.
///
/// `record` is called with the hashes of the files that will get their names, when their bytes are
/// durable, and before any file has its name. So a file that has its name always has its record,
/// even after a crash.
pub fn commit<D: Directory>(
    batch: Vec<SmallFile<D>>,
    record: impl FnOnce(&[Option<FileHash>]),
) -> Vec<Result<Option<FileHash>, PartError>> {
    let mut outcomes = sync_batch(&batch);
    let durable = batch.iter().zip(&outcomes);
    let durable = durable.map(|(small, outcome)| small.hash.filter(|_| outcome.is_ok()));
    record(&durable.collect::<Vec<_>>());
    for (small, outcome) in batch.iter().zip(&mut outcomes) {
        if outcome.is_ok() {
            *outcome = small.paths.rename_to_final_name(&small.paths.whole);
        }
        small.has_its_name.set(outcome.is_ok());
    }
    sync_names(&batch, &mut outcomes);
    let hashes: Vec<_> = batch.iter().map(|small| small.hash).collect();
    // This removes files that have not got their names.
    drop(batch);
    let outcomes = outcomes.into_iter().zip(hashes);
    outcomes
        .map(|(outcome, hash)| outcome.map(|()| hash))
        .collect()
}

type Outcomes = Vec<Result<(), PartError>>;

fn sync_batch<D: Directory>(batch: &[SmallFile<D>]) -> Outcomes {
    if batch.len() <= SYNC_EACH_MAX {
        return batch.iter().map(SmallFile::sync).collect();
    }
    let mut file_systems = HashMap::new();
    batch
        .iter()
        .map(|small| sync_once_per_file_system(small, &mut file_systems))
        .collect()
}

/// Syncs the file system of a file, once for all files on it. If that fails, or the file system is
/// unknown, syncs the file itself for its own result.
fn sync_once_per_file_system<D: Directory>(
    small: &SmallFile<D>,
    done: &mut HashMap<u64, bool>,
) -> Result<(), PartError> {
    let Ok(file_system) = small.file.file_system_id() else {
        return small.sync();
    };
    let sync = || small.file.sync_file_system().is_ok();
    match done.entry(file_system).or_insert_with(sync) {
        true => Ok(()),
        false => small.sync(),
    }
}

fn sync_names<D: Directory>(batch: &[SmallFile<D>], outcomes: &mut Outcomes) {
    let mut directories: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (at, small) in batch
        .iter()
        .enumerate()
        .filter(|(at, _)| outcomes[*at].is_ok())
    {
        directories
            .entry(small.paths.dir.id())
            .or_default()
            .push(at);
    }
    for files in directories.values() {
        let Err(error) = batch[files[0]].paths.dir.sync() else {
            continue;
        };
        for at in files {
            let error = clone_error(&error);
            outcomes[*at] = batch[*at]
                .paths
                .io_context("make its name durable", Err(error));
        }
    }
}

fn clone_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::BLOCK_LEN,
        part::{OpenOutcome, Part, SourceInfo, journal::Version},
        tests::{as_ordinary_user, is_root},
    };
    use std::{
        fs::{self, File, Permissions},
        os::{
            fd::AsFd,
            unix::fs::{MetadataExt, PermissionsExt, fchown},
        },
        path::Path,
    };

    fn dir(path: &Path) -> Dir {
        Dir::new(File::open(path).unwrap().as_fd()).unwrap()
    }

    fn hash(bytes: &[u8]) -> FileHash {
        FileHash(*blake3::hash(bytes).as_bytes())
    }

    fn write(dir: &Dir, name: &str) -> SmallFile {
        let bytes = name.as_bytes();
        SmallFile::write(dir, bytes, bytes, Some(hash(bytes)), false, |_| Ok(())).unwrap()
    }

    #[test]
    fn reports_an_outcome_for_each_file_of_a_batch() {
        for count in [SYNC_EACH_MAX, SYNC_EACH_MAX + 5] {
            let temp = tempfile::tempdir().unwrap();
            let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            let below = temp.path().join("below");
            fs::create_dir_all(below.join("3")).unwrap();
            let dirs = [dir(temp.path()), dir(&below)];
            let batch = names.iter().zip(dirs.iter().cycle());
            let batch = batch.map(|(name, dir)| write(dir, name)).collect();
            let mut recorded = Vec::new();
            let outcomes = commit(batch, |hashes| {
                assert!(!temp.path().join("0").exists(), "a name before the record");
                recorded.extend_from_slice(hashes);
            });
            let wanted = names.iter().map(|name| Some(hash(name.as_bytes())));
            assert_eq!(recorded, wanted.collect::<Vec<_>>());
            for (at, (name, outcome)) in names.iter().zip(&outcomes).enumerate() {
                let dir = [temp.path(), &below][at % 2];
                if at == 3 {
                    let error = outcome.as_ref().unwrap_err().to_string();
                    assert!(
                        error.starts_with("3: cannot rename it to its name"),
                        "{error}"
                    );
                } else {
                    assert_eq!(outcome.as_ref().unwrap(), &Some(hash(name.as_bytes())));
                    assert_eq!(fs::read(dir.join(name)).unwrap(), name.as_bytes());
                }
            }
        }
    }

    #[test]
    fn rejects_content_damaged_in_transit() {
        let temp = tempfile::tempdir().unwrap();
        let done = SmallFile::write(
            &dir(temp.path()),
            b"a",
            b"b",
            Some(hash(b"a")),
            false,
            |_| Ok(()),
        );
        let error = done.err().unwrap().to_string();
        assert!(error.starts_with("a: its hash is"), "{error}");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    #[test]
    fn sparse_file_gets_holes_for_zeros() {
        let temp = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; 1 << 20];
        bytes[500_000] = 1;
        for bytes in [&bytes[..], &bytes[..400_000]] {
            let dir = dir(temp.path());
            let small = SmallFile::write(&dir, b"a", bytes, Some(hash(bytes)), true, |_| Ok(()));
            assert!(commit(vec![small.unwrap()], |_| {})[0].is_ok());
            let found = temp.path().join("a");
            assert!(found.metadata().unwrap().blocks() * 512 <= 64 << 10);
            assert_eq!(fs::read(found).unwrap(), bytes);
        }
    }

    /// The file has its final owner and mode, but not its name: another copy is writing it, or was
    /// killed.
    fn write_again_after(give_away: impl FnOnce(&File)) {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let large = SourceInfo {
            version: Version::default(),
            length: 2 * BLOCK_LEN,
            sparse: true,
        };
        let first = SmallFile::write(&dir, b"a", b"a", None, false, |file| {
            give_away(file);
            Ok(())
        });
        let busy = SmallFile::write(&dir, b"a", b"b", None, false, |_| Ok(())).err();
        assert!(busy.unwrap().is_busy());
        let large = Part::open(&dir, b"a", &large).unwrap();
        assert!(matches!(large, OpenOutcome::Busy));
        drop(first.unwrap());
        let again = SmallFile::write(&dir, b"a", b"b", None, false, |_| Ok(()));
        assert!(commit(vec![again.unwrap()], |_| {})[0].is_ok());
        assert_eq!(fs::read(temp.path().join("a")).unwrap(), b"b");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn replaces_a_file_left_by_a_killed_run() {
        as_ordinary_user(|| {
            write_again_after(|file| file.set_permissions(Permissions::from_mode(0o444)).unwrap());
        });
        if is_root() {
            write_again_after(|file| fchown(file, Some(1234), None).unwrap());
        }
    }

    #[test]
    fn removes_leftovers_of_a_part_and_refuses_a_second_writer() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        for kind in ["part", "journal"] {
            let paths = PartPaths::new(&dir, b"a").unwrap();
            let internal = if kind == "part" {
                paths.part
            } else {
                paths.journal
            };
            fs::write(temp.path().join(String::from_utf8(internal).unwrap()), kind).unwrap();
        }
        let small = write(&dir, "a");
        let second = SmallFile::write(&dir, b"a", b"a", Some(hash(b"a")), false, |_| Ok(()));
        let error = second.err().unwrap().to_string();
        assert!(error.ends_with("another process is writing it"), "{error}");
        assert!(commit(vec![small], |_| {})[0].is_ok());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
        assert!(commit::<Dir>(Vec::new(), |_| {}).is_empty());
    }
}
