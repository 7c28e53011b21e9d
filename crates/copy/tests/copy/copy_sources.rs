// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources as shells give them (`dir/*`): links, missing ones, names that begin like internal ones; and ssh commands as
//! people write them.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::{Command, Output},
};
use tempfile::TempDir;

fn folder(files: &[&str]) -> TempDir {
    let temp = tempfile::tempdir().unwrap();
    for file in files {
        let path = temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    temp
}

/// Runs `longhaul copy` in a directory.
fn copy(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut copy = Command::new(longhaul_testprograms::longhaul());
    copy.arg("copy").args(arguments);
    copy.current_dir(folder.path()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(directory: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != ".longhaul-manifest").collect();
    names.sort();
    names
}

/// As rsync: a link among the sources is copied as a link, whether or not it leads anywhere. With a slash, it stands for
/// the directory.
#[test]
fn links_among_the_sources_stay_links() {
    let temp = folder(&["run1/a", "run2/b"]);
    symlink("run2", temp.path().join("latest")).unwrap();
    symlink("nowhere", temp.path().join("dangling")).unwrap();
    let sources = ["dangling", "latest", "run1", "run2", "to"];
    let output = copy(&temp, &sources);
    assert!(output.status.success(), "{}", stderr(&output));
    let to = temp.path().join("to");
    assert_eq!(names(to.clone()), ["dangling", "latest", "run1", "run2"]);
    assert_eq!(
        fs::read_link(to.join("latest")).unwrap().as_os_str(),
        "run2"
    );
    assert_eq!(
        fs::read_link(to.join("dangling")).unwrap().as_os_str(),
        "nowhere"
    );
    let again = copy(&temp, &sources);
    assert!(stderr(&again).is_empty() && again.status.success());
    for with_slash in ["latest/", "latest/."] {
        assert!(copy(&temp, &[with_slash, "contents"]).status.success());
        assert_eq!(names(temp.path().join("contents")), ["b"]);
    }
    // A link in the path of a source is followed.
    assert!(copy(&temp, &["latest/b", "file"]).status.success());
    assert_eq!(
        fs::read_to_string(temp.path().join("file")).unwrap(),
        "run2/b"
    );
    assert_eq!(copy(&temp, &["dangling/", "no"]).status.code(), Some(2));
}

/// One of several sources is missing: the others are copied, and nothing is removed.
#[test]
fn missing_sources_are_named_and_the_others_copied() {
    let temp = folder(&["a", "b/c", "to/extra"]);
    let output = copy(&temp, &["a", "missing", "b", "to"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("missing: No such file"),
        "{}",
        stderr(&output)
    );
    assert_eq!(names(temp.path().join("to")), ["a", "b", "extra"]);
    let output = copy(&temp, &["--delete", "b/", "missing/", "to"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("nothing is deleted"),
        "{}",
        stderr(&output)
    );
    assert_eq!(names(temp.path().join("to")), ["a", "b", "c", "extra"]);
    let output = copy(&temp, &["missing", "gone", "new"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(!temp.path().join("new").exists());
}

/// Only the names that longhaul itself uses are left out.
#[test]
fn names_that_only_begin_like_internal_ones_are_copied() {
    let own = [
        ".longhaul-0123.part",
        ".longhaul-manifest",
        ".longhaul-manifest-7",
    ];
    let theirs = [".longhaul-x", ".longhaul-notes.txt", ".longhaul-manifesto"];
    let files: Vec<String> = own
        .iter()
        .chain(&theirs)
        .map(|name| format!("from/{name}"))
        .collect();
    let temp = folder(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let output = copy(&temp, &["from/", "to"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut want = theirs.to_vec();
    want.sort_unstable();
    assert_eq!(names(temp.path().join("to")), want);
    fs::remove_file(temp.path().join("from/.longhaul-x")).unwrap();
    assert!(copy(&temp, &["--delete", "from/", "to"]).status.success());
    assert!(!temp.path().join("to/.longhaul-x").exists());
}

/// A program that reaches "hosts" on this machine, at a path with a space.
fn ssh_program(temp: &TempDir, run: &str) -> String {
    let path = temp.path().join("my ssh");
    fs::write(
        &path,
        format!("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexport SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n{run}\n"),
    )
    .unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn command_for_other_hosts_is_split_as_by_a_shell() {
    let temp = folder(&["a"]);
    let program = ssh_program(&temp, "exec \"$@\"");
    let far = format!("far:{}/to", temp.path().display());
    let longhaul = longhaul_testprograms::longhaul();
    for ssh in [
        format!("'{program}' -o 'ProxyCommand=a b'"),
        format!("\"{program}\""),
    ] {
        let output = copy(
            &temp,
            &["--ssh", &ssh, "--remote-program", longhaul, "a", &far],
        );
        assert!(output.status.success(), "{ssh}: {}", stderr(&output));
    }
    for invalid in ["'ssh", "", "  "] {
        let output = copy(&temp, &["--ssh", invalid, "a", &far]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("--ssh"), "{}", stderr(&output));
    }
}

/// A terminal turns the end of each line into CR LF: what follows would never be understood.
#[test]
fn terminal_at_the_other_host_is_named_at_once() {
    let temp = folder(&["a"]);
    let program = ssh_program(&temp, "\"$@\" | sed -u 's/$/\\r/'");
    let far = format!("far:{}/to", temp.path().display());
    let longhaul = longhaul_testprograms::longhaul();
    let ssh = format!("'{program}'");
    let output = copy(
        &temp,
        &["--ssh", &ssh, "--remote-program", longhaul, "a", &far],
    );
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a terminal"),
        "{}",
        stderr(&output)
    );
    assert!(!temp.path().join("to").exists());
}

/// As rsync, but of two files with one path the second is named.
#[test]
fn directories_of_several_sources_are_merged() {
    let temp = folder(&[
        "a/sub/1",
        "a/sub/deep/x",
        "b/sub/2",
        "b/sub/deep/y",
        "to/old",
        "to/sub/deep/old",
    ]);
    for (sources, to) in [(["a/", "b/"], "to"), (["a/sub", "b/sub"], "to")] {
        let output = copy(&temp, &[sources[0], sources[1], to]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(names(temp.path().join("to/sub")), ["1", "2", "deep"]);
        assert_eq!(names(temp.path().join("to/sub/deep")), ["old", "x", "y"]);
    }
    let output = copy(&temp, &["--delete", "a/", "b/", "to"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(temp.path().join("to")), ["sub"]);
    assert_eq!(names(temp.path().join("to/sub/deep")), ["x", "y"]);

    for path in ["b/sub/1", "to/sub/extra"] {
        fs::write(temp.path().join(path), "another").unwrap();
    }
    let output = copy(&temp, &["--delete", "a/", "b/", "to"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("sub/1: that of b/ is not copied, because a/ has this path, too"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(temp.path().join("to/sub/1")).unwrap(), b"a/sub/1");
    assert!(
        !temp.path().join("to/sub/extra").exists(),
        "all names were known"
    );
    assert_eq!(
        copy(&temp, &["a/sub/1", "b/sub/1", "to"]).status.code(),
        Some(2)
    );
}

#[test]
fn contents_of_several_sources_have_the_metadata_of_the_first() {
    let temp = folder(&["a/x", "b/y"]);
    for (directory, mode) in [("a", 0o700), ("b", 0o755)] {
        let path = temp.path().join(directory);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    for _ in 0..2 {
        assert!(copy(&temp, &["a/", "b/", "to"]).status.success());
        let mode = fs::metadata(temp.path().join("to"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn modules_of_an_rsync_daemon_are_refused() {
    let temp = folder(&["a"]);
    let output = copy(&temp, &["a", "host::module/x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("rsync daemon"),
        "{}",
        stderr(&output)
    );
}
