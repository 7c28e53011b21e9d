// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a copy goes: a directory is taken for the copy that an earlier run made only if it is that very one.

#[path = "copy_testbed/mod.rs"]
mod copy_testbed;

use copy_testbed::{Ground, disk::Disk};
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A new file system of one block group, in which the next directory has the number of the last one that was removed.
fn ext4(ground: &Ground, arguments: &[&str]) -> Disk {
    let (image, at) = (ground.path("image"), ground.path("disk"));
    fs::create_dir_all(&at).unwrap();
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096"])
        .args(arguments)
        .arg(&image));
    Disk::mount(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
}

/// `copy ARGUMENTS from TO`, where it is seen.
fn copy(ground: &Ground, disk: &Disk, arguments: &[&str], to: &Path) {
    let mut command = disk.within(ground, env!("CARGO_BIN_EXE_longhaul"));
    command.args(["copy", "--quiet"]).args(arguments);
    run(command.arg(ground.path("from")).arg(to));
}

/// Somebody puts a directory of his own where the copy was, with the same number.
fn replace(copied: &Path) {
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = number(copied);
    fs::remove_dir_all(copied).unwrap();
    fs::create_dir(copied).unwrap();
    assert_eq!(
        number(copied),
        before,
        "this file system gives numbers again"
    );
    fs::write(copied.join("precious"), "mine").unwrap();
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into())
        .collect();
    names.retain(|name: &PathBuf| !name.to_string_lossy().starts_with(".longhaul-"));
    names.sort();
    names
}

fn keeps_what_is_in_a_directory_with_the_number_of_a_copy(arguments: &[&str]) {
    let ground = Ground::new();
    fs::create_dir(ground.path("from")).unwrap();
    fs::write(ground.path("from/file"), "copied").unwrap();
    let disk = ext4(&ground, arguments);
    let (to, seen) = (disk.at.join("archive"), disk.seen().join("archive"));
    for _ in 0..2 {
        copy(&ground, &disk, &["--delete"], &to);
        assert_eq!(
            names(&seen),
            [PathBuf::from("file")],
            "the same again is the same directory"
        );
    }
    fs::write(seen.join("extra"), "").unwrap();
    copy(&ground, &disk, &["--delete"], &to);
    assert_eq!(
        names(&seen),
        [PathBuf::from("file")],
        "what is too much goes"
    );
    replace(&seen);
    copy(&ground, &disk, &["--delete"], &to);
    assert_eq!(names(&seen), ["from", "precious"].map(PathBuf::from));
    assert_eq!(fs::read_to_string(seen.join("precious")).unwrap(), "mine");
}

#[test]
fn keeps_what_is_in_a_directory_with_the_number_of_a_copy_by_its_birth_time() {
    keeps_what_is_in_a_directory_with_the_number_of_a_copy(&[]);
}

/// Inodes of 128 bytes have no room for it.
#[test]
fn keeps_what_is_in_a_directory_with_the_number_of_a_copy_where_there_are_no_birth_times() {
    keeps_what_is_in_a_directory_with_the_number_of_a_copy(&["-I", "128"]);
}
