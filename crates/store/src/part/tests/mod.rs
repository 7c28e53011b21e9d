// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::single_range_in_vec_init)] // a run of blocks is what is meant

mod slices;

use super::*;
use crate::{
    blocks::{BlockHash, Blocks, FILE_LEN_MAX, FileHash, tests::hash_of},
    part::journal::Version,
    path::internal_name,
    tests::{as_ordinary_user, is_root},
    vfs::{
        Dir,
        simulated::{SimRng, SimulatedDisk},
    },
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    ops::Range,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, PermissionsExt, chown, symlink},
        },
    },
    path::{Path, PathBuf},
};

const LEN: u64 = 64 << 10;

/// Directory, and a file of nine and a half blocks to be copied into it.
struct TestDir {
    temp: tempfile::TempDir,
    dir: Dir,
    content: Vec<u8>,
    source_info: SourceInfo,
}

impl TestDir {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(File::open(temp.path()).unwrap().as_fd()).unwrap();
        let mut content = vec![0; (9 * LEN + LEN / 2) as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        let source_info = SourceInfo {
            version: Version::default(),
            length: content.len() as u64,
            sparse: false,
        };
        Self {
            temp,
            dir,
            content,
            source_info,
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.temp.path().join(std::ffi::OsStr::from_bytes(name))
    }

    fn names(&self) -> usize {
        fs::read_dir(self.temp.path()).unwrap().count()
    }

    fn open(&self) -> Result<OpenOutcome, PartError> {
        Part::open_with_block_len(&self.dir, b"file", &self.source_info, LEN)
    }

    fn open_fresh(&self) -> Part {
        match self.open() {
            Ok(OpenOutcome::Fresh(part)) => part,
            Ok(_) => panic!("not fresh"),
            Err(error) => panic!("{error}"),
        }
    }

    fn open_resumed(&self) -> Part {
        match self.open() {
            Ok(OpenOutcome::Resumed(part)) => part,
            Ok(_) => panic!("not resumed"),
            Err(error) => panic!("{error}"),
        }
    }

    fn open_slice(&self, range: Range<u64>) -> Part {
        match Part::open_slice_with_block_len(&self.dir, b"file", &self.source_info, &[range], LEN)
        {
            Ok(OpenOutcome::Resumed(part)) => part,
            Ok(_) => panic!("no slice"),
            Err(error) => panic!("{error}"),
        }
    }

    fn block(&self, part: &Part, index: u64) -> (&[u8], BlockHash) {
        let range = part.blocks().range(index).unwrap();
        let bytes = &self.content[range.start as usize..range.end as usize];
        (bytes, part.blocks().hash(index, bytes).unwrap())
    }

    fn write(&self, part: &Part, indexes: Range<u64>) {
        for index in indexes {
            let (bytes, hash) = self.block(part, index);
            assert!(part.write(index, bytes, Some(hash)).unwrap());
        }
    }

    fn hash(&self) -> FileHash {
        let blocks = Blocks::with_block_len(self.content.len() as u64, LEN);
        hash_of(blocks, &self.content)
    }
}

fn error<T>(done: Result<T, PartError>) -> String {
    done.err().expect("an error").to_string()
}

#[test]
fn threads_write_blocks_while_another_commits() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    let taken = Mutex::new(Vec::new());
    let mut durable = std::thread::scope(|scope| {
        for thread in 0..4 {
            let (part, test_dir, taken) = (&part, &test_dir, &taken);
            scope.spawn(move || {
                for at in 0..10 {
                    let index = (at * 3 + thread) % 10;
                    let (bytes, hash) = test_dir.block(part, index);
                    if part.write(index, bytes, Some(hash)).unwrap() {
                        taken.lock().push(index);
                    }
                }
            });
        }
        let commits = scope.spawn(|| (0..5).flat_map(|_| part.commit().unwrap()).collect());
        commits.join().unwrap()
    });
    let durable: &mut Vec<u64> = &mut durable;
    durable.extend(part.commit().unwrap());
    durable.sort_unstable();
    let mut taken = taken.into_inner();
    taken.sort_unstable();
    assert_eq!(taken, (0..10).collect::<Vec<_>>(), "each once");
    assert_eq!(*durable, taken, "each once");
    let finished = part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    assert_eq!(finished.hash, Some(test_dir.hash()));
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
    assert_eq!(test_dir.names(), 2, "the file and its journal");
    finished.remove_journal().unwrap();
    assert_eq!(test_dir.names(), 1);
}

#[test]
fn resumes_with_committed_blocks_only() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    assert_eq!(part.missing(), [0..10]);
    test_dir.write(&part, 2..4);
    assert_eq!(part.commit().unwrap(), [2, 3]);
    test_dir.write(&part, 7..8);
    assert_eq!(part.missing(), [0..2, 4..7, 8..10]);
    drop(part);
    let part = test_dir.open_resumed();
    let hash = |index| (index, test_dir.block(&part, index).1);
    assert_eq!(part.durable(), [hash(2), hash(3)]);
    assert_eq!(part.missing(), [0..2, 4..10]);
    let (bytes, hash) = test_dir.block(&part, 2);
    assert!(
        !part.write(2, bytes, Some(hash)).unwrap(),
        "it was written already"
    );
    test_dir.write(&part, 0..2);
    test_dir.write(&part, 4..10);
    part.commit().unwrap();
    part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
}

#[test]
fn new_version_starts_again() {
    let mut test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    drop(part);
    test_dir.source_info.version.ctime.1 += 1;
    let part = test_dir.open_fresh();
    assert_eq!(part.missing(), [0..10]);
    let bytes = fs::read(test_dir.path(part.internal_name())).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn starts_again_without_part_or_without_journal() {
    let test_dir = TestDir::new();
    for kind in ["part", "journal"] {
        let part = test_dir.open_fresh();
        test_dir.write(&part, 0..3);
        part.commit().unwrap();
        drop(part);
        fs::remove_file(test_dir.path(&internal_name(b"file", kind))).unwrap();
        let part = test_dir.open_fresh();
        assert_eq!(part.missing(), [0..10], "without {kind}");
        part.discard().unwrap();
        assert_eq!(test_dir.names(), 0);
    }
}

#[test]
fn second_copy_of_a_file_is_busy() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    assert!(matches!(test_dir.open(), Ok(OpenOutcome::Busy)));
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    let finished = part.finish(None, |_| Ok(())).unwrap();
    assert!(
        matches!(test_dir.open(), Ok(OpenOutcome::Busy)),
        "the journal is still locked"
    );
    finished.remove_journal().unwrap();
    drop(test_dir.open_fresh());
}

#[test]
fn verifies_a_renamed_file_missing_in_the_manifest() {
    let test_dir = TestDir::new();
    let finish = || {
        let part = test_dir.open_fresh();
        test_dir.write(&part, 0..10);
        part.commit().unwrap();
        drop(part.finish(None, |_| Ok(())).unwrap());
    };
    finish();
    let Ok(OpenOutcome::Renamed(renamed)) = test_dir.open() else {
        panic!("not found");
    };
    let finished = renamed.finish(|_| Ok(())).unwrap();
    assert_eq!(finished.hash, Some(test_dir.hash()));
    drop(finished);
    let mut damaged = test_dir.content.clone();
    damaged[70_000] ^= 1;
    fs::write(test_dir.path(b"file"), damaged).unwrap();
    drop(test_dir.open_fresh());
}

#[test]
fn file_without_block_hashes_has_no_hash() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..9);
    let (bytes, _) = test_dir.block(&part, 9);
    let short = error(part.write(9, &bytes[1..], None));
    assert!(short.contains("block 9 at offset"), "{short}");
    assert!(part.write(9, bytes, None).unwrap());
    part.commit().unwrap();
    drop(part);
    let part = test_dir.open_resumed();
    assert!(part.missing().is_empty());
    let finished = part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    assert_eq!(finished.hash, None);
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
    drop(finished);
    // Without hashes, the finished file looks like any other file of that length.
    drop(test_dir.open_fresh());
}

#[test]
fn rejects_blocks_damaged_in_transit() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    let (bytes, hash) = test_dir.block(&part, 1);
    let mut damaged = bytes.to_vec();
    damaged[5] ^= 1;
    let message = error(part.write(1, &damaged, Some(hash)));
    assert!(
        message.starts_with("file: the block at offset 65536 was damaged"),
        "{message}"
    );
    error(part.write(2, bytes, Some(hash)));
    error(part.write(1, &bytes[1..], Some(hash)));
    error(part.write(10, bytes, Some(hash)));
    assert_eq!(part.missing(), [0..10]);
    let kept = fs::read(test_dir.path(part.internal_name())).unwrap();
    assert!(kept.iter().all(|byte| *byte == 0));
    assert!(part.write(1, bytes, Some(hash)).unwrap());
}

#[test]
fn holes_take_no_space_and_read_as_zeros() {
    let mut test_dir = TestDir::new();
    test_dir.source_info.sparse = true;
    test_dir.content[..LEN as usize * 9].fill(0);
    let part = test_dir.open_fresh();
    for index in 0..9 {
        assert!(part.write_hole(index).unwrap());
        assert!(!part.write_hole(index).unwrap());
    }
    test_dir.write(&part, 9..10);
    part.commit().unwrap();
    part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    let metadata = fs::metadata(test_dir.path(b"file")).unwrap();
    assert!(metadata.blocks() * 512 <= 2 * LEN, "{metadata:?}");
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
}

#[test]
fn sparse_file_gets_holes_for_zeros() {
    let mut test_dir = TestDir::new();
    test_dir.source_info.sparse = true;
    let earlier = test_dir.open_fresh();
    test_dir.write(&earlier, 0..10);
    drop(earlier);
    test_dir.content[LEN as usize / 2..LEN as usize * 9].fill(0);
    let part = test_dir.open_resumed();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    let metadata = fs::metadata(test_dir.path(b"file")).unwrap();
    assert!(metadata.blocks() * 512 <= 2 * LEN, "{metadata:?}");
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), test_dir.content);
}

#[test]
fn hole_overwrites_data_of_an_earlier_run() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    drop(part);
    let part = test_dir.open_resumed();
    assert!(part.write_hole(3).unwrap());
    let bytes = fs::read(test_dir.path(part.internal_name())).unwrap();
    let hole = &bytes[3 * LEN as usize..4 * LEN as usize];
    assert!(hole.iter().all(|byte| *byte == 0));
}

#[test]
fn refuses_to_finish_an_incomplete_file() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..9);
    part.commit().unwrap();
    test_dir.write(&part, 9..10);
    let message = error(part.finish(None, |_| Ok(())));
    assert_eq!(
        message,
        "file: not durable yet: the block at offset 589824, and 0 more"
    );
    assert!(!test_dir.path(b"file").exists());
    assert_eq!(test_dir.open_resumed().missing(), [9..10]);
}

#[test]
fn discards_a_file_with_the_wrong_hash() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    let message = error(part.finish(Some(FileHash::default()), |_| Ok(())));
    assert!(message.starts_with("file: its hash is"), "{message}");
    assert_eq!(test_dir.names(), 0);
}

#[test]
fn sets_metadata_before_renaming() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    let message = error(part.finish(None, |_| Err(io::Error::other("no such owner"))));
    assert_eq!(message, "file: cannot set its metadata: no such owner");
    assert!(!test_dir.path(b"file").exists());
    assert_eq!(test_dir.open_resumed().missing(), []);
}

#[test]
fn refuses_planted_internal_files() {
    for kind in ["part", "journal"] {
        let test_dir = TestDir::new();
        fs::write(test_dir.path(b"precious"), "precious").unwrap();
        let internal = internal_name(b"file", kind);
        symlink("precious", test_dir.path(&internal)).unwrap();
        let message = error(test_dir.open());
        let internal = String::from_utf8(internal).unwrap();
        let want =
            format!("file: cannot open {internal} beside it: a symbolic link is in its place");
        assert!(message.starts_with(&want), "{message}");
        assert_eq!(fs::read(test_dir.path(b"precious")).unwrap(), b"precious");
    }
}

#[test]
fn replaces_a_symlink_at_the_final_name() {
    let test_dir = TestDir::new();
    fs::write(test_dir.path(b"precious"), "precious").unwrap();
    symlink("precious", test_dir.path(b"file")).unwrap();
    let part = test_dir.open_fresh();
    test_dir.write(&part, 0..10);
    part.commit().unwrap();
    part.finish(None, |_| Ok(())).unwrap();
    assert_eq!(fs::read(test_dir.path(b"precious")).unwrap(), b"precious");
    assert!(
        fs::symlink_metadata(test_dir.path(b"file"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn accepts_only_single_component_names() {
    let test_dir = TestDir::new();
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'a'; 256]] {
        let message = error(Part::open(&test_dir.dir, name, &test_dir.source_info));
        assert!(message.ends_with("not a file name"), "{message}");
    }
    for name in [&b"\xff\n"[..], &[b'a'; 255]] {
        assert!(Part::open(&test_dir.dir, name, &test_dir.source_info).is_ok());
    }
}

#[test]
fn full_disk_leaves_an_empty_part() {
    let mut test_dir = TestDir::new();
    test_dir.source_info.length = FILE_LEN_MAX;
    let message = error(Part::open(&test_dir.dir, b"file", &test_dir.source_info));
    assert!(
        message.starts_with("file: cannot reserve space for it: "),
        "{message}"
    );
    let part = fs::metadata(test_dir.path(&internal_name(b"file", "part"))).unwrap();
    assert_eq!((part.len(), part.blocks()), (0, 0));
    test_dir.source_info.length += 1;
    let message = error(Part::open(&test_dir.dir, b"file", &test_dir.source_info));
    assert!(message.contains("more than the maximum"), "{message}");
}

#[test]
fn finishes_an_empty_file_without_blocks() {
    let mut test_dir = TestDir::new();
    (test_dir.source_info.length, test_dir.content) = (0, Vec::new());
    let part = test_dir.open_fresh();
    assert_eq!(part.missing(), []);
    assert!(part.commit().unwrap().is_empty());
    part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
    assert_eq!(fs::read(test_dir.path(b"file")).unwrap(), b"");
}

/// After a failed sync the kernel counts the pages as clean, so the next sync proves nothing.
#[test]
fn failed_commit_keeps_only_earlier_blocks() {
    let (disk, mut rng) = (SimulatedDisk::default(), SimRng(0));
    let dir = disk.directory();
    let source_info = SourceInfo {
        length: 3 * 1024,
        ..TestDir::new().source_info
    };
    let open = || Part::open_with_block_len(&dir, b"file", &source_info, 1024).unwrap();
    let write = |part: &Part<_>, index| {
        let hash = part.blocks().hash(index, &[7; 1024]).unwrap();
        part.write(index, &[7; 1024], Some(hash))
    };
    let OpenOutcome::Fresh(part) = open() else {
        panic!("not fresh");
    };
    write(&part, 0).unwrap();
    part.commit().unwrap();
    disk.fail_after(1);
    let message = error(write(&part, 1));
    assert_eq!(
        message,
        "file: cannot write at offset 1024: the power is off"
    );
    disk.restore_power();
    assert_eq!(part.missing(), [1..3]);
    assert!(write(&part, 1).unwrap(), "one block's error is its own");
    disk.fail_after(1);
    let message = error(part.commit());
    assert_eq!(
        message,
        "file: cannot make its blocks durable: the power is off"
    );
    disk.restore_power();
    for message in [error(write(&part, 2)), error(part.commit())] {
        assert!(message.starts_with("file: cannot continue"), "{message}");
    }
    assert!(error(part.finish(None, |_| Ok(()))).starts_with("file: cannot continue"));
    disk.crash(&mut rng);
    let OpenOutcome::Resumed(part) = open() else {
        panic!("not resumed");
    };
    assert_eq!(part.missing(), [1..3]);
}

#[test]
fn removes_leftovers_unless_locked() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    fs::write(test_dir.path(&internal_name(b"file", "whole")), "").unwrap();
    let busy = remove_leftovers(&test_dir.dir, b"file").unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    drop(part);
    remove_leftovers(&test_dir.dir, b"file").unwrap();
    assert_eq!(test_dir.names(), 0);
}

/// The earlier run was killed when the part had its final owner and mode, but not its name.
#[test]
fn restarts_a_part_with_final_owner_or_mode() {
    let again = |give_away: fn(&Path)| {
        let test_dir = TestDir::new();
        let part = test_dir.open_fresh();
        test_dir.write(&part, 0..10);
        part.commit().unwrap();
        let path = test_dir.path(part.internal_name());
        drop(part);
        give_away(&path);
        let slice = test_dir.open_slice(2..8);
        test_dir.write(&slice, 2..8);
        slice.commit().unwrap();
        drop(slice);
        give_away(&path);
        let part = test_dir.open_fresh();
        test_dir.write(&part, 0..10);
        part.commit().unwrap();
        let finished = part.finish(Some(test_dir.hash()), |_| Ok(())).unwrap();
        finished.remove_journal().unwrap();
        assert_eq!(test_dir.names(), 1);
    };
    as_ordinary_user(|| {
        again(|path| fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap());
    });
    if is_root() {
        again(|path| chown(path, Some(1234), None).unwrap());
    }
}

#[test]
fn uses_the_documented_internal_names() {
    let paths = PartPaths::new(&TestDir::new().dir, b"file").unwrap();
    let names: BTreeSet<_> = [
        paths.slice_journal(0),
        paths.slice_journal(63),
        paths.part,
        paths.journal,
    ]
    .into();
    let hash = &blake3::hash(b"file").to_hex()[..32];
    let want = ["part", "journal", "journal-0", "journal-63"]
        .map(|kind| format!(".longhaul-{hash}.{kind}").into_bytes());
    assert_eq!(names, want.into());
}

/// No lock is held on a part between two runs, and disks may change bytes.
#[test]
fn detects_a_byte_changed_between_runs() {
    let test_dir = TestDir::new();
    let part = test_dir.open_fresh();
    for index in 0..10 {
        let (bytes, hash) = test_dir.block(&part, index);
        part.write(index, bytes, Some(hash)).unwrap();
    }
    part.commit().unwrap();
    let path = test_dir.path(part.internal_name());
    drop(part);
    let mut bytes = fs::read(&path).unwrap();
    bytes[3 * LEN as usize + 7] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = test_dir
        .open_resumed()
        .finish(None, |_| Ok(()))
        .err()
        .unwrap();
    let message = error.to_string();
    assert!(
        matches!(error, PartError::Changed { offset, .. } if offset == 3 * LEN),
        "{message}"
    );
    assert_eq!(test_dir.names(), 0, "the part was discarded");
}

/// Reading blocks again stops at a block that cannot be read. That block must not count as read.
#[test]
fn refuses_to_finish_with_an_unreadable_block() {
    for block in 0..4 {
        let dir = SimulatedDisk::default().directory();
        let source_info = SourceInfo {
            length: 4 * 1024,
            ..TestDir::new().source_info
        };
        let open = || Part::open_with_block_len(&dir, b"file", &source_info, 1024).unwrap();
        let OpenOutcome::Fresh(part) = open() else {
            panic!("not fresh");
        };
        for index in 0..4 {
            let hash = part.blocks().hash(index, &[7; 1024]).unwrap();
            part.write(index, &[7; 1024], Some(hash)).unwrap();
        }
        part.commit().unwrap();
        drop(part);
        let resumed = || match open() {
            OpenOutcome::Resumed(part) => part,
            _ => panic!("not resumed"),
        };
        let part = resumed();
        let internal = internal_name(b"file", "part");
        dir.set_unreadable(&internal, block * 1024 + 5..block * 1024 + 6);
        while part.verify_next_inherited().unwrap_or(false) {}
        let message = error(part.finish(None, |_| Ok(())));
        assert_eq!(
            message, "file: cannot read it again: a bad sector",
            "{block}"
        );
        assert_eq!(dir.bytes(b"file"), None);
        dir.set_unreadable(&internal, 0..0);
        let part = resumed();
        assert_eq!(part.missing(), []);
        part.finish(None, |_| Ok(())).unwrap();
    }
}
