// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that are full, read-only or corrupt, and directories that disappear. Failed files are named, the rest is copied,
//! and the same command completes the copy when the fault is gone.

use crate::copy_testbed::{
    BLOCK, LoopbackTestbed,
    disk::Disk,
    durable::{internal_name, missing_bytes, progress},
    finish, kill,
    tree::{self, bytes},
};
use longhaul_store::part::journal;
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

fn copy(
    testbed: &LoopbackTestbed,
    from: &Path,
    to: &Path,
) -> (Option<i32>, serde_json::Value, String) {
    let output: Output = finish(testbed.start(&["--streams", "2"], &from.join(""), to));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let done = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), done, stderr)
}

/// Runs a copy, and kills it when some blocks of the file `large` are durable and some are not.
fn interrupt(testbed: &LoopbackTestbed, from: &Path, to: &Path) {
    for enough in [4, 2, 1] {
        let mut child = testbed.start(&["--limit", "400mbit"], &from.join(""), to);
        while child.try_wait().unwrap().is_none() && progress(to).0 < enough {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(child.id());
        drop(finish(child));
        testbed.netns.wait_until_empty();
        if to.join(internal_name(Path::new("large"), "part")).exists() && progress(to).0 > 0 {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
    panic!("it was never interrupted in time");
}

/// Mounts a file system in memory of this size in MiB.
fn small_disk(testbed: &LoopbackTestbed, mib: u64) -> Disk {
    let at = testbed.path("disk");
    fs::create_dir(&at).unwrap();
    let size = format!("size={mib}m");
    Disk::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new), at)
}

fn remount(disk: &Disk, testbed: &LoopbackTestbed, option: &str) {
    let mut mount = disk.within(testbed, "mount");
    mount.args(["-o", &format!("remount,{option}")]);
    assert!(mount.arg(&disk.at).status().unwrap().success());
}

fn copy_to(disk: &Disk, testbed: &LoopbackTestbed, from: &Path) -> (Option<i32>, String) {
    let output = disk.copy(testbed, from, &disk.at.join("to"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

/// Creates a large file of six blocks and some small files.
fn make(from: &Path) {
    fs::create_dir(from).unwrap();
    fs::write(from.join("large"), bytes(1, 6 * BLOCK + 3)).unwrap();
    for number in 0..5 {
        fs::write(
            from.join(format!("small-{number}")),
            bytes(2 + number, 1000),
        )
        .unwrap();
    }
}

#[test]
fn names_a_full_disk_and_resumes_when_there_is_space() {
    let testbed = LoopbackTestbed::new();
    let from = testbed.path("from");
    make(&from);
    let disk = small_disk(&testbed, 8);
    let (code, stderr) = copy_to(&disk, &testbed, &from);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("large") && stderr.contains("No space left"),
        "{stderr}"
    );
    let to = disk.outside_path().join("to");
    for number in 0..5 {
        assert!(to.join(format!("small-{number}")).exists(), "{number}");
    }
    assert!(!to.join("large").exists());
    remount(&disk, &testbed, "size=64m");
    let (code, stderr) = copy_to(&disk, &testbed, &from);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "with space");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

#[test]
fn names_every_file_on_a_read_only_target() {
    let testbed = LoopbackTestbed::new();
    let from = testbed.path("from");
    make(&from);
    let disk = small_disk(&testbed, 64);
    let to = disk.outside_path().join("to");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("small-3"), "another").unwrap();
    remount(&disk, &testbed, "ro");
    let before = tree::listing(&to);
    let (code, stderr) = copy_to(&disk, &testbed, &from);
    assert_eq!(code, Some(1), "{stderr}");
    for name in before.keys().chain(tree::listing(&from).keys()) {
        let start = format!("longhaul: target: {}: ", name.display());
        let of = |line: &&str| line.starts_with(&start) && line.contains("Read-only file system");
        assert_eq!(stderr.lines().filter(of).count(), 1, "{start}: {stderr}");
    }
    assert_eq!(tree::listing(&to), before);
    remount(&disk, &testbed, "rw");
    let (code, stderr) = copy_to(&disk, &testbed, &from);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "when it may be written");
}

/// The target directory is renamed and removed during the copy. Other directories do not change, nor does the new
/// directory of the same name.
#[test]
fn reports_a_removed_target_and_ends() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    make(&from);
    let child = testbed.start(&["--limit", "50mbit"], &from.join(""), &to);
    while progress(&to).0 == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let aside = testbed.path("aside");
    fs::rename(&to, &aside).unwrap();
    fs::create_dir(&to).unwrap();
    // The copy still creates files in it.
    while fs::remove_dir_all(&aside).is_err() {}
    let output = finish(child);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("large: cannot"), "{stderr}");
    assert_eq!(tree::walk(&to), Vec::<PathBuf>::new());
    assert!(!aside.exists());
    let (code, _, stderr) = copy(&testbed, &from, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "in the new one");
}

#[test]
fn names_files_that_cannot_replace_directories_and_copies_the_rest() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    make(&from);
    fs::create_dir_all(to.join("small-3/full")).unwrap();
    fs::create_dir_all(to.join("large/full")).unwrap();
    let (code, done, stderr) = copy(&testbed, &from, &to);
    assert_eq!((code, &done["failed"]), (Some(1), &2.into()), "{stderr}");
    assert!(
        stderr.contains("small-3") && stderr.contains("large"),
        "{stderr}"
    );
    fs::remove_dir_all(to.join("small-3")).unwrap();
    fs::remove_dir_all(to.join("large")).unwrap();
    let (code, done, stderr) = copy(&testbed, &from, &to);
    assert_eq!((code, &done["copied"]), (Some(0), &2.into()), "{stderr}");
    tree::assert_same(&from, &to, "without what was in the way");
}

/// The part file may become corrupt between a kill and the next command.
#[test]
fn detects_corrupt_blocks_and_copies_them_again() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    make(&from);
    interrupt(&testbed, &from, &to);
    flip(&to.join(internal_name(Path::new("large"), "part")), None);
    let (code, _, stderr) = copy(&testbed, &from, &to);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("large") && stderr.contains("changed on the disk"),
        "{stderr}"
    );
    assert!(!to.join("large").exists());
    let (code, _, stderr) = copy(&testbed, &from, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "anew");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

/// A damaged record of a journal is ignored: its block is retransmitted, without a message.
#[test]
fn retransmits_the_blocks_of_damaged_journal_records() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    make(&from);
    interrupt(&testbed, &from, &to);
    flip(
        &to.join(internal_name(Path::new("large"), "journal")),
        Some(journal::HEADER_LEN as u64 + 10),
    );
    let missing_bytes = missing_bytes(&from, &to);
    let (code, done, stderr) = copy(&testbed, &from, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    assert_eq!(done["sent_bytes"], missing_bytes);
    tree::assert_same(&from, &to, "after damage");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

/// Flips a bit of the byte at an offset, or of the first byte that is not zero.
fn flip(path: &Path, at: Option<u64>) {
    let contents = fs::read(path).unwrap();
    let written = || contents.iter().position(|byte| *byte != 0).unwrap() as u64;
    let at = at.unwrap_or_else(written);
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[contents[at as usize] ^ 1], at).unwrap();
}
