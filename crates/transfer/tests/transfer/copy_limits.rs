// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies where the system allows little: large files, many descriptors, many threads. What does not fit is named and the
//! rest goes on, or less is done at once.

use crate::copy_testbed::{
    BLOCK, Ground, finish, kill,
    tree::{self, bytes},
};
use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// `longhaul copy`, behind what limits it.
fn limited(ground: &Ground, limits: &[&str], from: &Path, to: &Path) -> Command {
    let mut command = ground.within(limits[0]);
    command.args(&limits[1..]);
    command.args([longhaul_testbed::longhaul(), "copy", "--json"]);
    command.arg(from.join("")).arg(to).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn copy(ground: &Ground, limits: &[&str], from: &Path, to: &Path) -> (Option<i32>, String) {
    let output = finish(limited(ground, limits, from, to).spawn().unwrap());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Beyond RLIMIT_FSIZE the kernel ends the process that writes, unless it asked for an error.
#[test]
fn a_file_that_is_too_large_is_named_and_the_rest_goes_on() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), bytes(1, 3 * BLOCK)).unwrap();
    // Without space that is reserved, it is a write that fails.
    let sparse = File::create(from.join("sparse")).unwrap();
    sparse.write_all_at(b"at the end", 3 * BLOCK).unwrap();
    fs::write(from.join("middling"), bytes(2, BLOCK + 1)).unwrap();
    fs::write(from.join("small"), bytes(3, 1000)).unwrap();
    let limit = format!("--fsize={}", 2 * BLOCK);
    let (code, said) = copy(&ground, &["prlimit", &limit], &from, &to);
    assert_eq!(code, Some(1), "{said}");
    for name in ["large", "sparse"] {
        let of = |line: &str| line.contains(&format!("{name}: ")) && line.contains("too large");
        assert_eq!(said.lines().filter(|line| of(line)).count(), 1, "{said}");
        assert!(!to.join(name).exists());
    }
    for name in ["middling", "small"] {
        let same = fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap();
        assert!(same, "{name}");
    }
    let (code, said) = copy(&ground, &["env"], &from, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "without a limit");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

/// Many more files than there may be descriptors.
#[test]
fn with_few_descriptors_fewer_files_are_open_at_once() {
    let ground = Ground::new();
    let from = ground.path("from");
    fs::create_dir(&from).unwrap();
    for number in 0..500 {
        fs::write(from.join(format!("small-{number}")), bytes(number, 100)).unwrap();
    }
    for number in 0..70 {
        let file = File::create(from.join(format!("large-{number}"))).unwrap();
        file.write_all_at(&[number], BLOCK + 5).unwrap();
    }
    for limit in ["--nofile=1024:1024", "--nofile=256:256"] {
        let to = ground.path(limit);
        let (code, said) = copy(&ground, &["prlimit", limit], &from, &to);
        assert_eq!((code, &said[..]), (Some(0), ""), "{limit}");
        tree::assert_same(&from, &to, limit);
        assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
    }
}

/// With one descriptor less than each end needs nothing is touched; with as many it is slow, and no more.
#[test]
fn without_descriptors_it_says_so_before_anything_is_touched() {
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
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
        let (code, said) = copy(&ground, &["prlimit", limit], &from, &to);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("needs 76") && said.contains("ulimit"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!to.exists());
    }
    let (code, said) = copy(&ground, &["prlimit", "--nofile=76:76"], &from, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&from, &to, "with just enough");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

/// The limit is one on all threads of a user, and none on root: so it needs another user.
#[test]
fn without_threads_it_says_why_and_does_not_panic() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let (from, to) = (ground.path("from"), ground.path("to"));
    let everybody = |mode| Permissions::from_mode(mode);
    fs::set_permissions(ground.folder.path(), everybody(0o777)).unwrap();
    fs::create_dir(&from).unwrap();
    fs::write(from.join("small"), "small").unwrap();
    // Nobody else's threads count.
    let user = format!("--reuid={}", 1_000_000_000 + std::process::id());
    let who = ["setpriv", &user, "--clear-groups", "prlimit", "--nproc=4"];
    let mut child = limited(&ground, &who, &from, &to).spawn().unwrap();
    let mut said = String::new();
    let mut from_it = BufReader::new(child.stderr.take().unwrap());
    from_it.read_line(&mut said).unwrap();
    kill(child.id());
    drop(finish(child));
    assert!(said.contains("cannot start a thread"), "{said}");
    ground.wait_until_empty();
}

/// Root of the machine, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
fn is_root() -> bool {
    longhaul_testbed::skip::unless(
        !longhaul_testbed::skip::is_confined(),
        "root of the machine",
    )
}
