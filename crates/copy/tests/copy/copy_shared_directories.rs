// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories in which several users write, as /tmp and /scratch, and drop boxes that only their owner may list.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

const USERS: [u32; 2] = [65533, 65534];

/// Directory of these permissions, and a file that everybody may read; `None` if there are no other users.
fn directory(mode: u32) -> Option<(TempDir, PathBuf)> {
    let is_root = rustix::process::geteuid().is_root()
        && !longhaul_testprograms::skip::is_in_user_namespace();
    if !longhaul_testprograms::skip::require_privileged(is_root, "other users") {
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    let shared = temp.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(temp.path().join("file"), "contents").unwrap();
    for (path, mode) in [(temp.path(), 0o755), (&shared, mode)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    Some((temp, shared))
}

fn run(user: u32, arguments: &[&Path]) -> Output {
    let mut copy = Command::new(longhaul_testprograms::longhaul());
    copy.arg("copy");
    if arguments[0] != Path::new("verify") {
        copy.arg("--no-owner");
    }
    copy.args(arguments).uid(user).gid(user);
    copy.env("HOME", "/nonexistent")
        .current_dir("/")
        .output()
        .unwrap()
}

fn assert_copied(output: &Output, to: &Path) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    assert_eq!(fs::read_to_string(to).unwrap(), "contents");
}

#[test]
fn users_copy_into_a_sticky_directory_one_after_the_other() {
    let Some((temp, shared)) = directory(0o1777) else {
        return;
    };
    let file = temp.path().join("file");
    for round in 0..2 {
        for user in [USERS[0], USERS[1], 0] {
            let to = shared.join(format!("{user}-{round}"));
            assert_copied(&run(user, &[&file, &to]), &to);
            assert_eq!(fs::metadata(&to).unwrap().uid(), user);
        }
    }
    // Each user's own files can be verified; the others' hashes are unknown to him.
    for user in USERS {
        let verified = run(user, &[Path::new("verify"), &shared]);
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(text.contains("2 "), "{text}");
        assert!(verified.status.success(), "{verified:?}");
    }
}

#[test]
fn drop_box_takes_files_of_users_who_may_not_list_it() {
    let Some((temp, shared)) = directory(0o1733) else {
        return;
    };
    chown(&shared, Some(USERS[0]), Some(USERS[0])).unwrap();
    let file = temp.path().join("file");
    let to = shared.join("file");
    assert_copied(&run(USERS[1], &[&file, &shared]), &to);
    let tree = temp.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("in"), "contents").unwrap();
    assert_copied(&run(USERS[1], &[&tree, &shared]), &shared.join("tree/in"));
    // Its contents, twice.
    for _ in 0..2 {
        assert_copied(
            &run(USERS[1], &[&tree.join(""), &shared]),
            &shared.join("in"),
        );
    }
}
