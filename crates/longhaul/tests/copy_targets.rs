// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a copy goes: a directory is taken for the copy that an earlier run made only if it is that very one, and nothing is copied
//! into or onto itself.

#[path = "copy_testbed/mod.rs"]
mod copy_testbed;

use copy_testbed::{Ground, disk::Disk, tree::listing};
use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
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

/// `src/sub/file`, `other/file`, and `link` to `src`.
fn nested() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for dir in ["src/sub", "other"] {
        fs::create_dir_all(at(dir)).unwrap();
        fs::write(at(dir).join("file"), dir).unwrap();
    }
    symlink("src", at("link")).unwrap();
    make_ssh(folder.path());
    folder
}

/// What stands for ssh: it forgets the host and runs the rest here.
fn make_ssh(folder: &Path) {
    let script = folder.join("ssh");
    let text = "#!/bin/sh\nshift 2\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.current_dir(folder).args(["copy", "--quiet"]);
    command.arg("--ssh").arg(folder.join("ssh"));
    command.args(["--remote-program", env!("CARGO_BIN_EXE_longhaul")]);
    command.args(arguments).output().unwrap()
}

/// Exit code 2, with this said, and nothing is touched.
fn refuses(folder: &Path, arguments: &[&str], why: &str) {
    let before = listing(folder);
    let output = in_folder(folder, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(why), "{arguments:?}: {said}");
    assert_eq!(listing(folder), before, "{arguments:?}");
}

#[test]
fn refuses_a_target_in_the_source() {
    let folder = nested();
    let top = folder.path();
    let absolute = top.join("link/sub/new");
    for arguments in [
        &["src", "src/sub/new"][..],
        &["src", "src/new"],
        &["src", "src"],
        &["src", "src/"],
        &["src/", "src/sub/new"],
        &["src/", "src/sub"],
        &["src", "link/sub/new"],
        &["src", absolute.to_str().unwrap()],
        &["link", "src/sub/new"],
        &["link/", "src/sub/new"],
        &["src", "src/sub/../new"],
        &["other/../src", "src/new"],
        &[".", "src/new"],
        &["other", "src", "src/sub"],
        &["src", "far:src/sub/new"],
        &["src", "far:~/link/sub/new"],
        &["far:src", "src/sub/new"],
        &["far:src", "far:link/new"],
        &["--dry-run", "src", "src/new"],
        &["--apart", "target", "src", "b1,b2:src/sub/new"],
        &["--exclude", "other", "src", "src/new"],
        &["-x", "src", "src/new"],
    ] {
        refuses(top, arguments, "it");
    }
    refuses(top, &["src", "src/sub/new"], "into itself");
}

#[test]
fn copies_to_a_directory_in_the_source_that_is_left_out() {
    let folder = nested();
    for arguments in [
        ["--exclude", "/new", "src/", "src/new"],
        ["--exclude", "/new", "src", "src/new"],
    ] {
        for _ in 0..2 {
            let output = in_folder(folder.path(), &arguments);
            assert!(output.status.success(), "{output:?}");
        }
    }
    let new = folder.path().join("src/new");
    assert_eq!(names(&new), ["src", "sub"].map(PathBuf::from));
    assert_eq!(names(&new.join("src")), [PathBuf::from("sub")]);
}

#[test]
fn refuses_to_copy_something_onto_itself() {
    let folder = nested();
    for arguments in [
        &["src/sub", "src"][..],
        &["src/sub", "link"],
        &["other/file", "other"],
        &["other/file", "other/file"],
        &["other/file", "src/../other/file"],
        &["other", "src/sub/file", "link/sub/"],
        &["far:src/sub", "src"],
    ] {
        refuses(folder.path(), arguments, "it");
    }
    // Two names of one file are not one place.
    fs::hard_link(
        folder.path().join("other/file"),
        folder.path().join("second"),
    )
    .unwrap();
    let output = in_folder(folder.path(), &["other/file", "second"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn refuses_to_delete_the_source() {
    let folder = nested();
    let top = folder.path();
    fs::create_dir_all(top.join("other/src/src/x")).unwrap();
    for arguments in [
        &["--delete", "src/sub/", "src"][..],
        &["--delete", "src/sub/", "link/"],
        &["--delete", "far:src/sub/", "src"],
        &["--delete", "src/sub/", "far:src"],
        &["--delete", "other/src/src", "other"],
        &["--delete", "--dry-run", "src/sub/", "src"],
        &["--delete", "src", "other/src/src/x", "other"],
    ] {
        refuses(top, arguments, "--delete");
    }
    let output = in_folder(top, &["--delete", "src/sub", "."]);
    assert!(output.status.success(), "beside the source: {output:?}");
}

/// The source is seen at another place, too: nothing in the target's name says so.
#[test]
fn refuses_a_target_in_the_source_behind_a_bind_mount() {
    let ground = Ground::new();
    let at = |name: &str| ground.path(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::create_dir_all(at("other/sub")).unwrap();
    for (mounted, on) in [("src/sub", "other"), ("other/sub", "src/sub")] {
        let disk = Disk::mount(&["--bind".as_ref(), at(mounted).as_os_str()], at(on));
        let target = match on {
            "other" => at("other/new"),
            _ => at("other/sub/new"),
        };
        let mut command = disk.within(&ground, env!("CARGO_BIN_EXE_longhaul"));
        let output = command.arg("copy").arg(at("src")).arg(&target).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{mounted}: {said}");
        assert!(said.contains("into itself"), "{said}");
        assert!(!disk.seen().join("new").exists());
    }
}
