// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::single_range_in_vec_init)] // a run of blocks is what is meant

mod slices;

use super::*;
use crate::{
    blocks::{BlockHash, FILE_LEN_MAX, FileHash},
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
    origin: SourceInfo,
}

impl TestDir {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(File::open(temp.path()).unwrap().as_fd()).unwrap();
        let mut content = vec![0; (9 * LEN + LEN / 2) as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        let origin = SourceInfo {
            version: Version::default(),
            length: content.len() as u64,
            sparse: false,
        };
        Self {
            temp,
            dir,
            content,
            origin,
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.temp.path().join(std::ffi::OsStr::from_bytes(name))
    }

    fn names(&self) -> usize {
        fs::read_dir(self.temp.path()).unwrap().count()
    }

    fn open(&self) -> Result<OpenOutcome, PartError> {
        Part::open_with_block_len(&self.dir, b"file", &self.origin, LEN)
    }

    fn fresh(&self) -> Part {
        match self.open() {
            Ok(OpenOutcome::Fresh(part)) => part,
            Ok(_) => panic!("not fresh"),
            Err(error) => panic!("{error}"),
        }
    }

    fn resumed(&self) -> Part {
        match self.open() {
            Ok(OpenOutcome::Resumed(part)) => part,
            Ok(_) => panic!("not resumed"),
            Err(error) => panic!("{error}"),
        }
    }

    fn slice(&self, within: Range<u64>) -> Part {
        match Part::open_slice_with_block_len(&self.dir, b"file", &self.origin, &[within], LEN) {
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
        FileHash(*blake3::hash(&self.content).as_bytes())
    }
}

fn error<T>(done: Result<T, PartError>) -> String {
    done.err().expect("an error").to_string()
}

#[test]
fn threads_write_blocks_while_another_commits() {
    let place = TestDir::new();
    let part = place.fresh();
    let taken = Mutex::new(Vec::new());
    let mut durable = std::thread::scope(|scope| {
        for thread in 0..4 {
            let (part, place, taken) = (&part, &place, &taken);
            scope.spawn(move || {
                for at in 0..10 {
                    let index = (at * 3 + thread) % 10;
                    let (bytes, hash) = place.block(part, index);
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
    let finished = part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    assert_eq!(finished.hash, Some(place.hash()));
    assert_eq!(fs::read(place.path(b"file")).unwrap(), place.content);
    assert_eq!(place.names(), 2, "the file and its journal");
    finished.remove_journal().unwrap();
    assert_eq!(place.names(), 1);
}

#[test]
fn resumes_with_committed_blocks_only() {
    let place = TestDir::new();
    let part = place.fresh();
    assert_eq!(part.missing(), [0..10]);
    place.write(&part, 2..4);
    assert_eq!(part.commit().unwrap(), [2, 3]);
    place.write(&part, 7..8);
    assert_eq!(part.missing(), [0..2, 4..7, 8..10]);
    drop(part);
    let part = place.resumed();
    let hash = |index| (index, place.block(&part, index).1);
    assert_eq!(part.durable(), [hash(2), hash(3)]);
    assert_eq!(part.missing(), [0..2, 4..10]);
    let (bytes, hash) = place.block(&part, 2);
    assert!(!part.write(2, bytes, Some(hash)).unwrap(), "it was here");
    place.write(&part, 0..2);
    place.write(&part, 4..10);
    part.commit().unwrap();
    part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    assert_eq!(fs::read(place.path(b"file")).unwrap(), place.content);
}

#[test]
fn another_version_starts_again() {
    let mut place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..10);
    part.commit().unwrap();
    drop(part);
    place.origin.version.ctime.1 += 1;
    let part = place.fresh();
    assert_eq!(part.missing(), [0..10]);
    let bytes = fs::read(place.path(part.internal_name())).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn starts_again_without_part_or_without_journal() {
    let place = TestDir::new();
    for kind in ["part", "journal"] {
        let part = place.fresh();
        place.write(&part, 0..3);
        part.commit().unwrap();
        drop(part);
        fs::remove_file(place.path(&internal_name(b"file", kind))).unwrap();
        let part = place.fresh();
        assert_eq!(part.missing(), [0..10], "without {kind}");
        part.discard().unwrap();
        assert_eq!(place.names(), 0);
    }
}

#[test]
fn second_copy_of_a_file_is_busy() {
    let place = TestDir::new();
    let part = place.fresh();
    assert!(matches!(place.open(), Ok(OpenOutcome::Busy)));
    place.write(&part, 0..10);
    part.commit().unwrap();
    let finished = part.finish(None, |_| Ok(())).unwrap();
    assert!(
        matches!(place.open(), Ok(OpenOutcome::Busy)),
        "not forgotten"
    );
    finished.remove_journal().unwrap();
    drop(place.fresh());
}

#[test]
fn verifies_a_renamed_file_missing_in_the_manifest() {
    let place = TestDir::new();
    let finish = || {
        let part = place.fresh();
        place.write(&part, 0..10);
        part.commit().unwrap();
        drop(part.finish(None, |_| Ok(())).unwrap());
    };
    finish();
    let Ok(OpenOutcome::Renamed(renamed)) = place.open() else {
        panic!("not found");
    };
    let finished = renamed.finish(|_| Ok(())).unwrap();
    assert_eq!(finished.hash, Some(place.hash()));
    drop(finished);
    let mut damaged = place.content.clone();
    damaged[70_000] ^= 1;
    fs::write(place.path(b"file"), damaged).unwrap();
    drop(place.fresh());
}

#[test]
fn file_without_block_hashes_has_no_hash() {
    let place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..9);
    let (bytes, _) = place.block(&part, 9);
    let short = error(part.write(9, &bytes[1..], None));
    assert!(short.contains("block 9 at offset"), "{short}");
    assert!(part.write(9, bytes, None).unwrap());
    part.commit().unwrap();
    drop(part);
    let part = place.resumed();
    assert!(part.missing().is_empty());
    let finished = part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    assert_eq!(finished.hash, None);
    assert_eq!(fs::read(place.path(b"file")).unwrap(), place.content);
    drop(finished);
    // Without hashes, the finished file cannot be told from another one of that length.
    drop(place.fresh());
}

#[test]
fn rejects_blocks_damaged_in_transit() {
    let place = TestDir::new();
    let part = place.fresh();
    let (bytes, hash) = place.block(&part, 1);
    let mut damaged = bytes.to_vec();
    damaged[5] ^= 1;
    let told = error(part.write(1, &damaged, Some(hash)));
    assert!(
        told.starts_with("file: the block at offset 65536 was damaged"),
        "{told}"
    );
    error(part.write(2, bytes, Some(hash)));
    error(part.write(1, &bytes[1..], Some(hash)));
    error(part.write(10, bytes, Some(hash)));
    assert_eq!(part.missing(), [0..10]);
    let kept = fs::read(place.path(part.internal_name())).unwrap();
    assert!(kept.iter().all(|byte| *byte == 0));
    assert!(part.write(1, bytes, Some(hash)).unwrap());
}

#[test]
fn holes_take_no_space_and_read_as_zeros() {
    let mut place = TestDir::new();
    place.origin.sparse = true;
    place.content[..LEN as usize * 9].fill(0);
    let part = place.fresh();
    for index in 0..9 {
        assert!(part.write_hole(index).unwrap());
        assert!(!part.write_hole(index).unwrap());
    }
    place.write(&part, 9..10);
    part.commit().unwrap();
    part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    let metadata = fs::metadata(place.path(b"file")).unwrap();
    assert!(metadata.blocks() * 512 <= 2 * LEN, "{metadata:?}");
    assert_eq!(fs::read(place.path(b"file")).unwrap(), place.content);
}

#[test]
fn sparse_file_gets_holes_for_zeros() {
    let mut place = TestDir::new();
    place.origin.sparse = true;
    let earlier = place.fresh();
    place.write(&earlier, 0..10);
    drop(earlier);
    place.content[LEN as usize / 2..LEN as usize * 9].fill(0);
    let part = place.resumed();
    place.write(&part, 0..10);
    part.commit().unwrap();
    part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    let metadata = fs::metadata(place.path(b"file")).unwrap();
    assert!(metadata.blocks() * 512 <= 2 * LEN, "{metadata:?}");
    assert_eq!(fs::read(place.path(b"file")).unwrap(), place.content);
}

#[test]
fn hole_overwrites_data_of_an_earlier_run() {
    let place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..10);
    drop(part);
    let part = place.resumed();
    assert!(part.write_hole(3).unwrap());
    let bytes = fs::read(place.path(part.internal_name())).unwrap();
    let hole = &bytes[3 * LEN as usize..4 * LEN as usize];
    assert!(hole.iter().all(|byte| *byte == 0));
}

#[test]
fn refuses_to_finish_an_incomplete_file() {
    let place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..9);
    part.commit().unwrap();
    place.write(&part, 9..10);
    let told = error(part.finish(None, |_| Ok(())));
    assert_eq!(
        told,
        "file: not durable yet: the block at offset 589824, and 0 more"
    );
    assert!(!place.path(b"file").exists());
    assert_eq!(place.resumed().missing(), [9..10]);
}

#[test]
fn discards_a_file_with_the_wrong_hash() {
    let place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..10);
    part.commit().unwrap();
    let told = error(part.finish(Some(FileHash::default()), |_| Ok(())));
    assert!(told.starts_with("file: its hash is"), "{told}");
    assert_eq!(place.names(), 0);
}

#[test]
fn sets_metadata_before_renaming() {
    let place = TestDir::new();
    let part = place.fresh();
    place.write(&part, 0..10);
    part.commit().unwrap();
    let told = error(part.finish(None, |_| Err(io::Error::other("no such owner"))));
    assert_eq!(told, "file: cannot set its metadata: no such owner");
    assert!(!place.path(b"file").exists());
    assert_eq!(place.resumed().missing(), []);
}

#[test]
fn refuses_planted_internal_files() {
    for kind in ["part", "journal"] {
        let place = TestDir::new();
        fs::write(place.path(b"precious"), "precious").unwrap();
        let own = internal_name(b"file", kind);
        symlink("precious", place.path(&own)).unwrap();
        let told = error(place.open());
        let own = String::from_utf8(own).unwrap();
        let want = format!("file: cannot open {own} beside it: a symbolic link is in its place");
        assert!(told.starts_with(&want), "{told}");
        assert_eq!(fs::read(place.path(b"precious")).unwrap(), b"precious");
    }
}

#[test]
fn replaces_a_symlink_at_the_final_name() {
    let place = TestDir::new();
    fs::write(place.path(b"precious"), "precious").unwrap();
    symlink("precious", place.path(b"file")).unwrap();
    let part = place.fresh();
    place.write(&part, 0..10);
    part.commit().unwrap();
    part.finish(None, |_| Ok(())).unwrap();
    assert_eq!(fs::read(place.path(b"precious")).unwrap(), b"precious");
    assert!(fs::symlink_metadata(place.path(b"file")).unwrap().is_file());
}

#[test]
fn accepts_only_single_component_names() {
    let place = TestDir::new();
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'a'; 256]] {
        let told = error(Part::open(&place.dir, name, &place.origin));
        assert!(told.ends_with("not a file name"), "{told}");
    }
    for name in [&b"\xff\n"[..], &[b'a'; 255]] {
        assert!(Part::open(&place.dir, name, &place.origin).is_ok());
    }
}

#[test]
fn full_disk_leaves_an_empty_part() {
    let mut place = TestDir::new();
    place.origin.length = FILE_LEN_MAX;
    let told = error(Part::open(&place.dir, b"file", &place.origin));
    assert!(
        told.starts_with("file: cannot reserve space for it: "),
        "{told}"
    );
    let part = fs::metadata(place.path(&internal_name(b"file", "part"))).unwrap();
    assert_eq!((part.len(), part.blocks()), (0, 0));
    place.origin.length += 1;
    let told = error(Part::open(&place.dir, b"file", &place.origin));
    assert!(told.contains("more than the maximum"), "{told}");
}

#[test]
fn finishes_an_empty_file_without_blocks() {
    let mut place = TestDir::new();
    (place.origin.length, place.content) = (0, Vec::new());
    let part = place.fresh();
    assert_eq!(part.missing(), []);
    assert_eq!(part.commit().unwrap(), []);
    part.finish(Some(place.hash()), |_| Ok(())).unwrap();
    assert_eq!(fs::read(place.path(b"file")).unwrap(), b"");
}

/// After a failed sync the kernel counts the pages as clean, so the next sync proves nothing.
#[test]
fn failed_commit_keeps_only_earlier_blocks() {
    let (disk, mut dice) = (SimulatedDisk::default(), SimRng(0));
    let dir = disk.directory();
    let origin = SourceInfo {
        length: 3 * 1024,
        ..TestDir::new().origin
    };
    let open = || Part::open_with_block_len(&dir, b"file", &origin, 1024).unwrap();
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
    let told = error(write(&part, 1));
    assert_eq!(told, "file: cannot write at offset 1024: the power is off");
    disk.restore_power();
    assert_eq!(part.missing(), [1..3]);
    assert!(write(&part, 1).unwrap(), "one block's error is its own");
    disk.fail_after(1);
    let told = error(part.commit());
    assert_eq!(
        told,
        "file: cannot make its blocks durable: the power is off"
    );
    disk.restore_power();
    for told in [error(write(&part, 2)), error(part.commit())] {
        assert!(told.starts_with("file: cannot continue"), "{told}");
    }
    assert!(error(part.finish(None, |_| Ok(()))).starts_with("file: cannot continue"));
    disk.crash(&mut dice);
    let OpenOutcome::Resumed(part) = open() else {
        panic!("not resumed");
    };
    assert_eq!(part.missing(), [1..3]);
}

#[test]
fn removes_leftovers_unless_locked() {
    let place = TestDir::new();
    let part = place.fresh();
    fs::write(place.path(&internal_name(b"file", "whole")), "").unwrap();
    let busy = remove_leftovers(&place.dir, b"file").unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    drop(part);
    remove_leftovers(&place.dir, b"file").unwrap();
    assert_eq!(place.names(), 0);
}

/// The earlier run was killed when the part had its final owner and mode, but not its name.
#[test]
fn restarts_a_part_with_final_owner_or_mode() {
    let again = |give_away: fn(&Path)| {
        let place = TestDir::new();
        let part = place.fresh();
        place.write(&part, 0..10);
        part.commit().unwrap();
        let path = place.path(part.internal_name());
        drop(part);
        give_away(&path);
        let slice = place.slice(2..8);
        place.write(&slice, 2..8);
        slice.commit().unwrap();
        drop(slice);
        give_away(&path);
        let part = place.fresh();
        place.write(&part, 0..10);
        part.commit().unwrap();
        let finished = part.finish(Some(place.hash()), |_| Ok(())).unwrap();
        finished.remove_journal().unwrap();
        assert_eq!(place.names(), 1);
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
    let site = PartPaths::new(&TestDir::new().dir, b"file").unwrap();
    let names: BTreeSet<_> = [
        site.slice_journal(0),
        site.slice_journal(63),
        site.part,
        site.journal,
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
    let place = TestDir::new();
    let part = place.fresh();
    for index in 0..10 {
        let (bytes, hash) = place.block(&part, index);
        part.write(index, bytes, Some(hash)).unwrap();
    }
    part.commit().unwrap();
    let path = place.path(part.internal_name());
    drop(part);
    let mut bytes = fs::read(&path).unwrap();
    bytes[3 * LEN as usize + 7] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = place.resumed().finish(None, |_| Ok(())).err().unwrap();
    let said = error.to_string();
    assert!(
        matches!(error, PartError::Changed { offset, .. } if offset == 3 * LEN),
        "{said}"
    );
    assert_eq!(place.names(), 0, "it begins anew");
}

/// Reading blocks again stops at a block that cannot be read. That block must not count as read.
#[test]
fn refuses_to_finish_with_an_unreadable_block() {
    for place in 0..4 {
        let dir = SimulatedDisk::default().directory();
        let origin = SourceInfo {
            length: 4 * 1024,
            ..TestDir::new().origin
        };
        let open = || Part::open_with_block_len(&dir, b"file", &origin, 1024).unwrap();
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
        let own = internal_name(b"file", "part");
        dir.set_unreadable(&own, place * 1024 + 5..place * 1024 + 6);
        while part.verify_next_inherited().unwrap_or(false) {}
        let told = error(part.finish(None, |_| Ok(())));
        assert_eq!(told, "file: cannot read it again: a bad sector", "{place}");
        assert_eq!(dir.bytes(b"file"), None);
        dir.set_unreadable(&own, 0..0);
        let part = resumed();
        assert_eq!(part.missing(), []);
        part.finish(None, |_| Ok(())).unwrap();
    }
}
