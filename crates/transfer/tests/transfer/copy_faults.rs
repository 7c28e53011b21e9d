// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that are full, read-only or whose bytes change, and directories that vanish: what fails is named, the rest goes
//! on, and the same command puts it right when it can.

use crate::copy_testbed::{
    BLOCK, Ground,
    disk::Disk,
    durable::{lacking, own_name, progress},
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

fn copy(ground: &Ground, from: &Path, to: &Path) -> (Option<i32>, serde_json::Value, String) {
    let output: Output = finish(ground.start(&["--streams", "2"], &from.join(""), to));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let done = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), done, said)
}

/// Copies until some blocks of the file `large` are durable and some are not, and kills it then.
fn interrupt(ground: &Ground, from: &Path, to: &Path) {
    for enough in [4, 2, 1] {
        let mut child = ground.start(&["--limit", "400mbit"], &from.join(""), to);
        while child.try_wait().unwrap().is_none() && progress(to).0 < enough {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(child.id());
        drop(finish(child));
        ground.wait_until_empty();
        if to.join(own_name(Path::new("large"), "part")).exists() && progress(to).0 > 0 {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
    panic!("it was never interrupted in time");
}

/// A file system in memory, of so many MiB.
fn small_disk(ground: &Ground, mib: u64) -> Disk {
    let at = ground.path("disk");
    fs::create_dir(&at).unwrap();
    let size = format!("size={mib}m");
    Disk::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new), at)
}

fn remount(disk: &Disk, ground: &Ground, option: &str) {
    let mut mount = disk.within(ground, "mount");
    mount.args(["-o", &format!("remount,{option}")]);
    assert!(mount.arg(&disk.at).status().unwrap().success());
}

fn copy_to(disk: &Disk, ground: &Ground, from: &Path) -> (Option<i32>, String) {
    let output = disk.copy(ground, from, &disk.at.join("to"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// A large file of six blocks and some small ones.
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
fn a_full_disk_is_named_and_the_copy_goes_on_when_there_is_room() {
    let ground = Ground::new();
    let from = ground.path("from");
    make(&from);
    let disk = small_disk(&ground, 8);
    let (code, said) = copy_to(&disk, &ground, &from);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("large") && said.contains("No space left"),
        "{said}"
    );
    let to = disk.seen().join("to");
    for number in 0..5 {
        assert!(to.join(format!("small-{number}")).exists(), "{number}");
    }
    assert!(!to.join("large").exists());
    remount(&disk, &ground, "size=64m");
    let (code, said) = copy_to(&disk, &ground, &from);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "with room");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

#[test]
fn where_nothing_may_be_written_every_file_is_named_and_nothing_changes() {
    let ground = Ground::new();
    let from = ground.path("from");
    make(&from);
    let disk = small_disk(&ground, 64);
    let to = disk.seen().join("to");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("small-3"), "another").unwrap();
    remount(&disk, &ground, "ro");
    let before = tree::listing(&to);
    let (code, said) = copy_to(&disk, &ground, &from);
    assert_eq!(code, Some(1), "{said}");
    for name in before.keys().chain(tree::listing(&from).keys()) {
        let start = format!("longhaul: {}: ", name.display());
        let of = |line: &&str| line.starts_with(&start) && line.contains("Read-only file system");
        assert_eq!(said.lines().filter(of).count(), 1, "{start}: {said}");
    }
    assert_eq!(tree::listing(&to), before);
    remount(&disk, &ground, "rw");
    let (code, said) = copy_to(&disk, &ground, &from);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "when it may be written");
}

/// Somebody removes the target while it is written. What is outside stays as it is, also what has taken its place.
#[test]
fn a_target_that_vanishes_is_told_and_nothing_waits_for_it() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    make(&from);
    let child = ground.start(&["--limit", "50mbit"], &from.join(""), &to);
    while progress(&to).0 == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let aside = ground.path("aside");
    fs::rename(&to, &aside).unwrap();
    fs::create_dir(&to).unwrap();
    // It is being filled.
    while fs::remove_dir_all(&aside).is_err() {}
    let output = finish(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("large: cannot"), "{said}");
    assert_eq!(tree::walk(&to), Vec::<PathBuf>::new());
    assert!(!aside.exists());
    let (code, _, said) = copy(&ground, &from, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "in the new one");
}

#[test]
fn what_cannot_be_placed_is_named_and_the_rest_goes_on() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    make(&from);
    fs::create_dir_all(to.join("small-3/full")).unwrap();
    fs::create_dir_all(to.join("large/full")).unwrap();
    let (code, done, said) = copy(&ground, &from, &to);
    assert_eq!((code, &done["failed"]), (Some(1), &2.into()), "{said}");
    assert!(said.contains("small-3") && said.contains("large"), "{said}");
    fs::remove_dir_all(to.join("small-3")).unwrap();
    fs::remove_dir_all(to.join("large")).unwrap();
    let (code, done, said) = copy(&ground, &from, &to);
    assert_eq!((code, &done["made"]), (Some(0), &2.into()), "{said}");
    tree::assert_same(&from, &to, "without what was in the way");
}

/// Between a kill and the next command anything may befall the files beside.
#[test]
fn bytes_that_change_on_the_disk_are_found_and_copied_anew() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    make(&from);
    interrupt(&ground, &from, &to);
    flip(&to.join(own_name(Path::new("large"), "part")), None);
    let (code, _, said) = copy(&ground, &from, &to);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("large") && said.contains("changed on the disk"),
        "{said}"
    );
    assert!(!to.join("large").exists());
    let (code, _, said) = copy(&ground, &from, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "anew");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

/// A record of a journal that is damaged is not believed: its block goes again, and nothing is said.
#[test]
fn a_damaged_journal_costs_blocks_and_no_more() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    make(&from);
    interrupt(&ground, &from, &to);
    flip(
        &to.join(own_name(Path::new("large"), "journal")),
        Some(journal::HEADER_LEN as u64 + 10),
    );
    let lacking = lacking(&from, &to);
    let (code, done, said) = copy(&ground, &from, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    assert_eq!(done["sent_bytes"], lacking);
    tree::assert_same(&from, &to, "after damage");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

/// Changes a byte: the one that is named, or the first that is not zero.
fn flip(path: &Path, at: Option<u64>) {
    let contents = fs::read(path).unwrap();
    let written = || contents.iter().position(|byte| *byte != 0).unwrap() as u64;
    let at = at.unwrap_or_else(written);
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[contents[at as usize] ^ 1], at).unwrap();
}
