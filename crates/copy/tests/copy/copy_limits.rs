// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies under resource limits: file size, descriptors and threads. Files that exceed a limit are named and the rest is
//! copied, or less is done at the same time.

use crate::copy_testbed::{
    BLOCK, LoopbackTestbed, finish, kill,
    tree::{self, bytes},
};
use longhaul_testprograms::skip;
use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns a command that runs `longhaul copy` under limits.
fn limited(testbed: &LoopbackTestbed, limits: &[&str], from: &Path, to: &Path) -> Command {
    let mut command = testbed.within(limits[0]);
    command.args(&limits[1..]);
    command.args([longhaul_testprograms::longhaul(), "copy", "--json"]);
    command.arg(from.join("")).arg(to).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn copy(
    testbed: &LoopbackTestbed,
    limits: &[&str],
    from: &Path,
    to: &Path,
) -> (Option<i32>, String) {
    let output = finish(limited(testbed, limits, from, to).spawn().unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

/// Beyond RLIMIT_FSIZE the kernel kills the writing process by a signal, unless it ignores the signal.
#[test]
fn names_files_beyond_the_size_limit_and_copies_the_rest() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), bytes(1, 3 * BLOCK)).unwrap();
    // No space is reserved for a sparse file, so that a write fails.
    let sparse = File::create(from.join("sparse")).unwrap();
    sparse.write_all_at(b"at the end", 3 * BLOCK).unwrap();
    fs::write(from.join("middling"), bytes(2, BLOCK + 1)).unwrap();
    fs::write(from.join("small"), bytes(3, 1000)).unwrap();
    let limit = format!("--fsize={}", 2 * BLOCK);
    let (code, stderr) = copy(&testbed, &["prlimit", &limit], &from, &to);
    assert_eq!(code, Some(1), "{stderr}");
    for name in ["large", "sparse"] {
        let of = |line: &str| line.contains(&format!("{name}: ")) && line.contains("too large");
        assert_eq!(
            stderr.lines().filter(|line| of(line)).count(),
            1,
            "{stderr}"
        );
        assert!(!to.join(name).exists());
    }
    for name in ["middling", "small"] {
        let same = fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap();
        assert!(same, "{name}");
    }
    let (code, stderr) = copy(&testbed, &["env"], &from, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "without a limit");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

/// Copies many more files than descriptors are allowed.
#[test]
fn opens_fewer_files_with_few_descriptors() {
    let testbed = LoopbackTestbed::new();
    let from = testbed.path("from");
    fs::create_dir(&from).unwrap();
    for number in 0..500 {
        fs::write(from.join(format!("small-{number}")), bytes(number, 100)).unwrap();
    }
    for number in 0..70 {
        let file = File::create(from.join(format!("large-{number}"))).unwrap();
        file.write_all_at(&[number], BLOCK + 5).unwrap();
    }
    for limit in ["--nofile=1024:1024", "--nofile=256:256"] {
        let to = testbed.path(limit);
        let (code, stderr) = copy(&testbed, &["prlimit", limit], &from, &to);
        assert_eq!((code, &stderr[..]), (Some(0), ""), "{limit}");
        tree::assert_same(&from, &to, limit);
        assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
    }
}

/// With one descriptor less than an endpoint needs, the copy is refused. With exactly as many, it succeeds.
#[test]
fn refuses_too_few_descriptors_before_any_change() {
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    fs::create_dir(&from).unwrap();
    for number in 0..40 {
        fs::write(from.join(format!("small-{number}")), bytes(number, 100)).unwrap();
    }
    for number in 0..4 {
        fs::write(
            from.join(format!("large-{number}")),
            bytes(number, BLOCK + 1),
        )
        .unwrap();
    }
    for limit in ["--nofile=24:24", "--nofile=75:75"] {
        let (code, stderr) = copy(&testbed, &["prlimit", limit], &from, &to);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(
            stderr.contains("needs 76") && stderr.contains("ulimit"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!to.exists());
    }
    let (code, stderr) = copy(&testbed, &["prlimit", "--nofile=76:76"], &from, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "with just enough");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

/// The limit is on all threads of a user, and does not apply to root. So the test needs another user.
#[test]
fn reports_a_thread_limit_without_a_panic() {
    if !skip::require_root_of_the_machine() {
        return;
    }
    let testbed = LoopbackTestbed::new();
    let (from, to) = (testbed.path("from"), testbed.path("to"));
    let everybody = |mode| Permissions::from_mode(mode);
    fs::set_permissions(testbed.folder.path(), everybody(0o777)).unwrap();
    fs::create_dir(&from).unwrap();
    fs::write(from.join("small"), "small").unwrap();
    // A user of its own, so that other threads do not count.
    let user = format!("--reuid={}", 1_000_000_000 + std::process::id());
    let limits = ["setpriv", &user, "--clear-groups", "prlimit", "--nproc=4"];
    let mut child = limited(&testbed, &limits, &from, &to).spawn().unwrap();
    let mut stderr = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut stderr).unwrap();
    kill(child.id());
    drop(finish(child));
    assert!(stderr.contains("cannot start a thread"), "{stderr}");
    testbed.netns.wait_until_empty();
}
