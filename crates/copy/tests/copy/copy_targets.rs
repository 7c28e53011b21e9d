// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets of a copy. A directory counts as the copy of an earlier run only if it is the same directory. Nothing is copied
//! into or onto itself.

use crate::copy_testbed::{LoopbackTestbed, disk::Disk, tree::listing};
use longhaul_testprograms::process;
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

/// Mounts a new file system of one block group, in which a new directory gets the inode number of the last removed one.
fn ext4(testbed: &LoopbackTestbed, arguments: &[&str]) -> Disk {
    let (image, at) = (testbed.path("image"), testbed.path("disk"));
    fs::create_dir_all(&at).unwrap();
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096"])
        .args(arguments)
        .arg(&image));
    Disk::mount(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
}

/// Runs `copy ARGUMENTS from TO` in the namespace in which the disk is mounted.
fn copy(testbed: &LoopbackTestbed, disk: &Disk, arguments: &[&str], to: &Path) {
    let mut command = disk.within(testbed, longhaul_testprograms::longhaul());
    command.args(["copy", "--quiet"]).args(arguments);
    run(command.arg(testbed.path("from")).arg(to));
}

/// Replaces the copy by another directory with the same inode number.
fn replace(copied: &Path) {
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = number(copied);
    fs::remove_dir_all(copied).unwrap();
    fs::create_dir(copied).unwrap();
    assert_eq!(
        number(copied),
        before,
        "this file system reuses inode numbers"
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

fn assert_new_directory_is_kept(arguments: &[&str]) {
    let testbed = LoopbackTestbed::new();
    fs::create_dir(testbed.path("from")).unwrap();
    fs::write(testbed.path("from/file"), "copied").unwrap();
    let disk = ext4(&testbed, arguments);
    let (to, seen) = (disk.at.join("archive"), disk.outside_path().join("archive"));
    for _ in 0..2 {
        copy(&testbed, &disk, &["--delete"], &to);
        assert_eq!(
            names(&seen),
            [PathBuf::from("file")],
            "the same command uses the same directory"
        );
    }
    fs::write(seen.join("extra"), "").unwrap();
    copy(&testbed, &disk, &["--delete"], &to);
    assert_eq!(
        names(&seen),
        [PathBuf::from("file")],
        "extra entries are removed"
    );
    replace(&seen);
    copy(&testbed, &disk, &["--delete"], &to);
    assert_eq!(names(&seen), ["from", "precious"].map(PathBuf::from));
    assert_eq!(fs::read_to_string(seen.join("precious")).unwrap(), "mine");
}

#[test]
fn tells_a_new_directory_from_a_copy_by_birth_time() {
    assert_new_directory_is_kept(&[]);
}

/// Inodes of 128 bytes have no birth time.
#[test]
fn tells_a_new_directory_from_a_copy_without_birth_times() {
    assert_new_directory_is_kept(&["-I", "128"]);
}

/// Creates `src/sub/file`, `other/file`, and `link` to `src`.
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

/// Creates a script in place of ssh, which ignores the host and runs the program locally.
fn make_ssh(folder: &Path) {
    let script = folder.join("ssh");
    let text = "#!/bin/sh\nshift 2\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.current_dir(folder).args(["copy", "--quiet"]);
    command.arg("--ssh").arg(folder.join("ssh"));
    command.args(["--remote-program", longhaul_testprograms::longhaul()]);
    command.args(arguments).output().unwrap()
}

/// Asserts that the command fails with exit code 2 and this message, and changes nothing.
fn assert_refused(folder: &Path, arguments: &[&str], why: &str) {
    let before = listing(folder);
    process::assert_refused(&in_folder(folder, arguments), 2, &[why]);
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
        &["link/", "src/sub/new"],
        &["link/.", "src/sub/new"],
        &["src", "src/sub/../new"],
        &["other/../src", "src/new"],
        &[".", "src/new"],
        &["other", "src", "src/sub"],
        &["src", "far:src/sub/new"],
        &["src", "far:~/link/sub/new"],
        &["far:src", "src/sub/new"],
        &["far:src", "far:link/new"],
        &["--dry-run", "src", "src/new"],
        &["--distributed", "target", "src", "b1,b2:src/sub/new"],
        &["--exclude", "other", "src", "src/new"],
        &["-x", "src", "src/new"],
    ] {
        assert_refused(top, arguments, "it");
    }
    assert_refused(top, &["src", "src/sub/new"], "into itself");
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
        assert_refused(folder.path(), arguments, "it");
    }
    // Two names of one file are different locations.
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
        assert_refused(top, arguments, "--delete");
    }
    let output = in_folder(top, &["--delete", "src/sub", "."]);
    assert!(output.status.success(), "beside the source: {output:?}");
}

/// The source is also visible under another path, which the target's name does not show.
#[test]
fn refuses_a_target_in_the_source_behind_a_bind_mount() {
    let testbed = LoopbackTestbed::new();
    let at = |name: &str| testbed.path(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::create_dir_all(at("other/sub")).unwrap();
    for (mounted, on) in [("src/sub", "other"), ("other/sub", "src/sub")] {
        let disk = Disk::mount(&["--bind".as_ref(), at(mounted).as_os_str()], at(on));
        let target = match on {
            "other" => at("other/new"),
            _ => at("other/sub/new"),
        };
        let mut command = disk.within(&testbed, longhaul_testprograms::longhaul());
        let output = command.arg("copy").arg(at("src")).arg(&target).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{mounted}: {stderr}");
        assert!(stderr.contains("into itself"), "{stderr}");
        assert!(!disk.outside_path().join("new").exists());
    }
}

/// Asserts that the command is refused, and does not change the entry at `path`.
fn assert_refuses_to_replace(folder: &Path, arguments: &[&str], path: &Path, what: &str) {
    let before = fs::symlink_metadata(path).unwrap();
    let output = in_folder(folder, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.contains(what), "{arguments:?}: {stderr}");
    let after = fs::symlink_metadata(path).unwrap();
    assert_eq!(
        (after.ino(), after.mode()),
        (before.ino(), before.mode()),
        "{arguments:?}"
    );
}

#[test]
fn refuses_a_device_a_fifo_or_a_socket_as_target() {
    let folder = nested();
    let at = |name: &str| folder.path().join(name);
    let (null, output) = (at("null"), at("stdout"));
    let mknod = |name: &str, arguments: &[&str]| {
        run(Command::new("mknod").arg(at(name)).args(arguments));
    };
    // Devices as in /dev, for this test only.
    mknod("null", &["c", "1", "3"]);
    mknod("fifo", &["p"]);
    symlink("/proc/self/fd/2", &output).unwrap();
    symlink("null", at("void")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("dev")).unwrap();
    mknod("dev/file", &["c", "1", "3"]);
    for (arguments, path, what) in [
        (&["other/file", "null"][..], &null, "a device"),
        (&["src", "null"], &null, "a device"),
        (&["src/", "null"], &null, "a device"),
        (&["other/file", "far:null"], &null, "a device"),
        (&["--dry-run", "other/file", "null"], &null, "a device"),
        (&["other/file", "void"], &at("void"), "a device"),
        (&["other/file", "stdout"], &output, "is there"),
        (&["other/file", "fifo"], &at("fifo"), "a fifo"),
        (&["other/file", "socket"], &at("socket"), "a socket"),
        (&["other/file", "dev"], &at("dev/file"), "a device"),
        (&["src", "other/file", "dev/"], &at("dev/file"), "a device"),
    ] {
        assert_refuses_to_replace(folder.path(), arguments, path, what);
    }
    assert!(!at("dev/src").exists(), "nothing is changed");
    // In a copied directory the device is named, and the rest is copied.
    let output = in_folder(folder.path(), &["other/", "dev"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("file: a device is in the way"), "{stderr}");
}

#[test]
fn replaces_devices_and_fifos_of_the_same_kind() {
    let folder = nested();
    for (name, arguments) in [("device", &["c", "1", "3"][..]), ("fifo", &["p"])] {
        run(Command::new("mknod")
            .arg(folder.path().join(name))
            .args(arguments));
        for arguments in [
            [name, "copied"],
            [name, "copied"],
            [name, "other"],
            [name, "other"],
        ] {
            let output = in_folder(folder.path(), &arguments);
            assert!(output.status.success(), "{output:?}");
        }
        fs::remove_file(folder.path().join("copied")).unwrap();
    }
}

#[test]
fn rejects_unknown_url_schemes() {
    let folder = nested();
    for arguments in [
        ["src", "s3://bucket/x"],
        ["https://example.org/x", "new"],
        ["src", "far://x"],
    ] {
        assert_refused(folder.path(), &arguments, "unknown scheme");
    }
}

/// Returns a command that runs as a user in a group.
fn as_user(number: u32, group: &str) -> Command {
    let mut command = Command::new("setpriv");
    let user = 1_000_000 + number;
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.args(["--groups", group, longhaul_testprograms::longhaul()]);
    command
}

#[test]
fn users_of_a_group_copy_into_one_directory() {
    const GROUP: u32 = 1_000_000;
    let folder = nested();
    let top = folder.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let shared = top.join("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, None, Some(GROUP)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775)).unwrap();
    let copy = |user: u32, from: &str, to: &Path| {
        let mut command = as_user(user, &GROUP.to_string());
        command
            .args(["copy", "--quiet"])
            .arg(top.join(from))
            .arg(to);
        run(&mut command);
    };
    for user in 1..4 {
        let name = format!("of-{user}");
        fs::write(top.join(&name), &name).unwrap();
        copy(user, &name, &shared);
        // The same command of another user uses the same directory.
        copy(user, "src", &shared.join("renamed"));
    }
    let manifest = fs::metadata(shared.join(".longhaul-manifest")).unwrap();
    assert_eq!((manifest.mode() & 0o777, manifest.gid()), (0o664, GROUP));
    assert_eq!(names(&shared.join("renamed")), [PathBuf::from("sub")]);
    run(as_user(9, &GROUP.to_string())
        .args(["copy", "verify"])
        .arg(&shared));
}

/// Metadata that a user may not set is not tried, is reported once, and does not count as a difference.
#[test]
fn reports_metadata_that_the_user_may_not_set_once() {
    let folder = nested();
    let top = folder.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let home = top.join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(1_000_001), Some(1_000_001)).unwrap();
    let dir = top.join("many");
    fs::create_dir(&dir).unwrap();
    for number in 0..20 {
        let path = dir.join(number.to_string());
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    }
    symlink("0", dir.join("link")).unwrap();
    let copy = |arguments: &[&str]| {
        let mut command = as_user(1, "1000001");
        command
            .arg("copy")
            .args(arguments)
            .arg(dir.join(""))
            .arg(home.join("many"));
        run(&mut command)
    };
    let stderr = String::from_utf8(copy(&["--quiet"]).stderr).unwrap();
    for kind in ["owners", "groups", "set-id bits"] {
        let lines = stderr
            .lines()
            .filter(|line| line.contains(&format!("{kind} are not set")));
        assert_eq!(lines.count(), 1, "{stderr}");
    }
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
    let planned = copy(&["--dry-run"]);
    let plan = String::from_utf8(planned.stdout).unwrap();
    assert!(plan.contains("0 would be created, 0 changed"), "{plan}");
    assert_eq!(copy(&["--quiet"]).stderr, b"", "nothing is left to do");
    let mode = fs::metadata(home.join("many/0")).unwrap().mode();
    assert_eq!(
        mode & 0o7777,
        0o755,
        "the set-id bit is not copied without the owner"
    );
}

#[test]
fn creates_the_parent_directories_of_a_target() {
    let folder = nested();
    let top = folder.path();
    let copies = |arguments: &[&str]| {
        let output = in_folder(top, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    copies(&["--dry-run", "other/file", "a/b/c/d"]);
    copies(&["--dry-run", "src", "a/b/c/"]);
    assert!(!top.join("a").exists(), "a dry run creates nothing");
    for (arguments, made) in [
        (&["other/file", "a/b/c/d"][..], "a/b/c/d"),
        (&["src", "b/b/c/d"], "b/b/c/d/sub/file"),
        (&["src/", "c/b/c/d"], "c/b/c/d/sub/file"),
        (&["src", "d/b/c/"], "d/b/c/src/sub/file"),
        (&["src", "other", "e/b/c"], "e/b/c/other/file"),
        (&["other/file", "far:f/b/c/d"], "f/b/c/d"),
    ] {
        copies(arguments);
        copies(arguments);
        assert!(top.join(made).is_file(), "{arguments:?}");
    }
    assert_refused(top, &["nothing", "g/b/c"], "No such file");
    let output = in_folder(top, &["src", "other/file/b/c"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// As when an administrator copies into a user's directory.
#[test]
fn root_and_a_user_copy_into_the_same_directory() {
    let folder = nested();
    let top = folder.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let home = top.join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(1_000_001), Some(1_000_001)).unwrap();
    for user in [0, 1, 0] {
        let name = format!("of-{user}");
        fs::write(
            top.join(&name),
            fs::read_dir(&home).unwrap().count().to_string(),
        )
        .unwrap();
        let mut command = match user {
            0 => Command::new(longhaul_testprograms::longhaul()),
            _ => as_user(1, "1000001"),
        };
        run(command
            .args(["copy", "--quiet"])
            .arg(top.join(&name))
            .arg(&home));
    }
}

/// With `-x`, as with rsync, file systems mounted in the target are not changed.
#[test]
fn keeps_file_systems_mounted_in_the_target() {
    let testbed = LoopbackTestbed::new();
    let at = |name: &str| testbed.path(name);
    fs::create_dir_all(at("src/has")).unwrap();
    fs::write(at("src/file"), "x").unwrap();
    for mounted in ["to/extra/disk", "to/has", "to/disk"] {
        fs::create_dir_all(at("other")).unwrap();
        fs::write(at("other/precious"), "mine").unwrap();
        fs::create_dir_all(at(mounted)).unwrap();
        let options = ["-t", "tmpfs", "tmpfs"].map(AsRef::as_ref);
        let disk = Disk::mount(&options, at(mounted));
        fs::copy(at("other/precious"), disk.outside_path().join("precious")).unwrap();
        let mut planned = disk.within(&testbed, longhaul_testprograms::longhaul());
        planned.args(["copy", "--dry-run", "-x", "--delete"]);
        let planned = run(planned.arg(at("src/")).arg(at("to")));
        let planned = String::from_utf8(planned.stdout).unwrap();
        assert!(!planned.contains("precious"), "{mounted}: {planned}");
        let mut command = disk.within(&testbed, longhaul_testprograms::longhaul());
        command.args(["copy", "--quiet", "-x", "--delete"]);
        run(command.arg(at("src/")).arg(at("to")));
        assert!(disk.outside_path().join("precious").exists(), "{mounted}");
        drop(disk);
        fs::remove_dir_all(at("to")).unwrap();
    }
}

/// Users with write access by the mode or by an access control list copy into a directory of another owner.
#[test]
fn users_with_write_access_copy_into_one_directory() {
    const GROUP: u32 = 1_000_000;
    let folder = nested();
    let top = folder.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = |user: u32, to: &Path| {
        let name = format!("of-{user}");
        fs::write(top.join(&name), &name).unwrap();
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={}", 1_000_000 + user));
        command.args([format!("--regid={GROUP}"), "--clear-groups".to_owned()]);
        command.args([longhaul_testprograms::longhaul(), "copy", "--quiet"]);
        run(command.arg(top.join(&name)).arg(to));
    };
    let (open, listed) = (top.join("open"), top.join("listed"));
    for dir in [&open, &listed] {
        fs::create_dir(dir).unwrap();
    }
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    // ACL with two named users: version 2, then owner, users, group, mask and others.
    let entries: [(u16, u16, u32); 6] = [
        (1, 7, u32::MAX),
        (2, 7, 1_000_001),
        (2, 7, 1_000_002),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, number) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&listed, "system.posix_acl_access", &list, flags).unwrap();
    for dir in [&open, &listed] {
        for user in [1, 2, 1] {
            copy(user, dir);
        }
        assert_eq!(names(dir), ["of-1", "of-2"].map(PathBuf::from));
    }
}

/// Metadata that a user may not set, because another user owns the file, is reported once and does not count as a
/// difference.
#[test]
fn reports_files_of_another_owner_once() {
    let folder = nested();
    let top = folder.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["src/a", "src/b"] {
        fs::write(top.join(name), "x").unwrap();
    }
    run(Command::new("cp")
        .args(["-a"])
        .arg(top.join("src"))
        .arg(top.join("theirs")));
    for (name, mode) in [
        ("theirs", 0o777),
        ("theirs/a", 0o666),
        ("theirs/sub", 0o777),
    ] {
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let copy = |arguments: &[&str]| {
        let mut command = as_user(1, "1000001");
        command.arg("copy").args(arguments);
        run(command.arg(top.join("src/")).arg(top.join("theirs")))
    };
    // The manifest is the first new file in the directory.
    let planned = String::from_utf8(copy(&["--dry-run"]).stdout).unwrap();
    assert!(
        planned.contains("0 would be created, 0 changed"),
        "{planned}"
    );
    let done = copy(&[]);
    let (stdout, stderr) = (done.stdout, String::from_utf8(done.stderr).unwrap());
    let stdout = String::from_utf8(stdout).unwrap();
    assert!(stdout.starts_with("0 copied"), "{stdout}");
    let lines = stderr
        .lines()
        .filter(|line| line.contains("belong to another"));
    assert_eq!(lines.count(), 1, "{stderr}");
    let mode = fs::metadata(top.join("theirs/a")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o666);
}

/// Devices and fifos with two names, as in the tree of a system.
#[test]
fn copies_hard_links_of_devices_and_fifos() {
    let folder = nested();
    let at = |name: &str| folder.path().join(name);
    run(Command::new("mknod")
        .arg(at("src/a-device"))
        .args(["c", "1", "3"]));
    run(Command::new("mknod").arg(at("src/a-fifo")).arg("p"));
    for kind in ["device", "fifo"] {
        fs::hard_link(at(&format!("src/a-{kind}")), at(&format!("src/b-{kind}"))).unwrap();
    }
    let copies = |arguments: &[&str]| {
        let output = in_folder(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    copies(&["src/", "all"]);
    copies(&["src/", "all"]);
    copies(&["--dry-run", "src/", "all"]);
    for (arguments, left) in [
        (&["--no-devices"][..], &["device"][..]),
        (&["--no-special"], &["fifo"]),
        (&["--safe"], &["device", "fifo"]),
    ] {
        let to = arguments[0];
        for _ in 0..2 {
            let mut command = Command::new(longhaul_testprograms::longhaul());
            command.current_dir(folder.path()).args(["copy", "--json"]);
            let output = run(command.args(arguments).args(["src/", &format!("./{to}")]));
            let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(record["skipped"], 2 * left.len(), "{record}");
            let all = ["unchanged", "copied", "skipped"].map(|what| record[what].as_u64().unwrap());
            assert_eq!(
                all.iter().sum::<u64>(),
                record["entries"].as_u64().unwrap(),
                "{record}"
            );
        }
        for kind in ["device", "fifo"] {
            for name in ["a", "b"] {
                let there = at(to)
                    .join(format!("{name}-{kind}"))
                    .symlink_metadata()
                    .is_ok();
                assert_eq!(there, !left.contains(&kind), "{to} {name}-{kind}");
            }
        }
    }
}

/// ssh passes on the output of the other host.
#[test]
fn escapes_the_output_of_the_other_host() {
    let folder = nested();
    let ssh = folder.path().join("ssh");
    let text = "#!/bin/sh\nprintf '\\033]0;title\\007 closed\\r\\n' >&2\nexit 255\n";
    fs::write(&ssh, text).unwrap();
    let output = in_folder(folder.path(), &["src", "far:to"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        !stderr.contains(|char: char| char.is_control() && char != '\n'),
        "{stderr:?}"
    );
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[0], "\\u{1b}]0;title\\u{7} closed", "{stderr}");
    assert!(
        lines[1].contains("cannot reach far: ssh failed"),
        "{stderr}"
    );
}
