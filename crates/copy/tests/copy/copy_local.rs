// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local copies with `longhaul copy`: the copy equals the source, a second run does nothing, and a killed copy is
//! resumable.

use crate::copy_testbed::{
    BLOCK, children, finish, kill,
    tree::{self, bytes},
};
use longhaul_store::{
    entry::Version,
    part::{OpenOutcome, Part, SourceInfo},
    vfs::Dir,
};
use longhaul_testprograms::process::assert_refused;
use serde_json::Value;
use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

fn command(arguments: &[&str], from: &Path, to: &Path) -> Command {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["copy", "--json"]).args(arguments);
    command.args([from, to]);
    command
}

fn copy(arguments: &[&str], from: &Path, to: &Path) -> Value {
    let wanted = command(arguments, from, to);
    // A copy that hangs fails the test.
    let mut command = Command::new("timeout");
    command.arg("120").arg(wanted.get_program());
    let output = command.args(wanted.get_args()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sparse files larger and smaller than a block, with and without data.
#[test]
fn preserves_holes() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    let sizes = [100, 1 << 20, BLOCK, 3 * BLOCK, 5 * BLOCK + 100];
    for (size, data) in sizes.iter().flat_map(|size| [(*size, 0), (*size, 100)]) {
        let file = File::create(from.join(format!("{size} {data}"))).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&vec![7; data], size / 2).unwrap();
    }
    for hash in ["on", "off"] {
        let to = folder.path().join(hash);
        let done = copy(&["--hash", hash], &from.join(""), &to);
        assert_eq!(done["failed"], 0, "{done}");
        tree::assert_same(&from, &to, "");
        for file in fs::read_dir(&from).unwrap().map(Result::unwrap) {
            let space = |path: PathBuf| fs::metadata(path).unwrap().blocks() * 512;
            let (there, here) = (space(to.join(file.file_name())), space(file.path()));
            assert!(there <= here + 4096, "{:?}: {there}", file.file_name());
        }
    }
}

#[test]
fn last_matching_pattern_decides() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(from.join("old")).unwrap();
    for name in ["a.dat", "b.tmp", "keep.tmp", "old/c.dat"] {
        fs::write(from.join(name), name).unwrap();
    }
    let copied = |patterns: &[&str]| {
        copy(patterns, &from.join(""), &to);
        let files = tree::listing(&to).into_keys();
        let files: Vec<_> = files.filter(|path| to.join(path).is_file()).collect();
        fs::remove_dir_all(&to).unwrap();
        files
    };
    let exception = copied(&["--exclude", "*.tmp", "--include", "keep.tmp"]);
    assert_eq!(
        exception,
        ["a.dat", "keep.tmp", "old/c.dat"].map(PathBuf::from)
    );
    let only = copied(&["--include", "*.dat", "--exclude", "old/"]);
    assert_eq!(only, [PathBuf::from("a.dat")]);
}

#[test]
fn copies_a_tree_and_a_second_run_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    tree::make(&from, 0);
    let first = copy(&[], &from, &to);
    tree::assert_same(&from, &to, "");
    assert_eq!(first["failed"], 0);
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
    let second = copy(&[], &from.join(""), &to);
    assert_eq!(second["copied"], 0, "{second}");
    assert_eq!(second["sent_bytes"], 0);
    tree::assert_same(&from, &to, "");
}

/// With --one-file-system, mounted file systems of the source are not copied, and the target's entries in their place stay.
#[test]
fn leaves_out_mounted_file_systems_on_request() {
    if !longhaul_testprograms::skip::require(rustix::process::geteuid().is_root(), "root, to mount")
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for (file, text) in [("from/file", "one"), ("to/mounted/own", "two")] {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::create_dir(from.join("mounted")).unwrap();
    let script = "mount -t tmpfs tmpfs from/mounted && echo three > from/mounted/file && exec \"$0\" copy -q --delete \"$@\" from/ to";
    let copy = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            script,
            longhaul_testprograms::longhaul(),
        ]);
        let done = command
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    copy(&["--one-file-system"]);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"one");
    assert_eq!(fs::read(to.join("mounted/own")).unwrap(), b"two");
    assert!(!to.join("mounted/file").exists());
    copy(&[]);
    assert_eq!(fs::read(to.join("mounted/file")).unwrap(), b"three\n");
    assert!(!to.join("mounted/own").exists());
}

/// All transport options copy the same tree and record the hash of every file, unless hashing is off.
#[test]
fn copies_the_same_tree_with_all_transport_options() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    tree::make(&from, 0);
    let option_sets: [&[&str]; 6] = [
        &["--encrypt", "on", "--pacing", "off"],
        &["--encrypt", "off", "--hash", "off"],
        &["--streams", "auto", "--pacing", "800mbit"],
        &["--streams", "7"],
        &["--cc", "reno", "--encrypt", "on", "--hash", "off"],
        &["--limit", "2gbit"],
    ];
    for (number, options) in option_sets.iter().enumerate() {
        let to = folder.path().join(number.to_string());
        let record = copy(options, &from.join(""), &to);
        tree::assert_same(&from, &to, &format!("{options:?}"));
        let streams = record["streams"].as_array().unwrap();
        let carried: u64 = streams
            .iter()
            .map(|one| one["acked_bytes"].as_u64().unwrap())
            .sum();
        let known = fs::read_to_string(to.join(".longhaul-manifest")).unwrap_or_default();
        let hashed = known.lines().count();
        if options.contains(&"--hash") {
            assert!(hashed < 10, "{options:?}: {known}");
        } else {
            assert!(hashed > 300, "{options:?}: {hashed}");
        }
        assert!(
            carried <= 2 * record["sent_bytes"].as_u64().unwrap(),
            "{options:?}: {record}"
        );
    }
}

#[test]
fn names_targets_as_cp_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("one"), "1").unwrap();
    fs::write(at("two"), "2").unwrap();
    fs::create_dir(at("there")).unwrap();
    copy(&[], &at("one"), &at("renamed"));
    copy(&[], &at("one"), &at("there"));
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::write(at("dir/three"), "3").unwrap();
    fs::write(at("dir/sub/four"), "4").unwrap();
    fs::set_permissions(at("dir"), fs::Permissions::from_mode(0o711)).unwrap();
    let mode = || fs::metadata(folder.path()).unwrap().mode();
    let around = (tree::listing(folder.path()), mode());
    for contents in ["dir/.", "dir/", "dir/sub/.."] {
        let made = copy(&["--delete"], &at(contents), &at("made"));
        assert_eq!(made["removed"], 0, "{contents}: {made}");
        tree::assert_same(&at("dir"), &at("made"), contents);
        fs::remove_dir_all(at("made")).unwrap();
        assert_eq!((tree::listing(folder.path()), mode()), around, "{contents}");
    }
    let mut both = command(&[], &at("one"), &at("two"));
    assert!(both.arg(at("new")).output().unwrap().status.success());
    for (name, wanted) in [
        ("renamed", "1"),
        ("there/one", "1"),
        ("new/one", "1"),
        ("new/two", "2"),
    ] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), wanted, "{name}");
    }
}

#[test]
fn removes_extra_entries_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(from.join("kept")).unwrap();
    fs::write(from.join("kept/file"), "x").unwrap();
    copy(&[], &from.join(""), &to);
    fs::create_dir_all(to.join("gone/deep")).unwrap();
    fs::write(to.join("gone/deep/file"), "x").unwrap();
    fs::write(to.join("kept/log"), "x").unwrap();
    copy(&[], &from.join(""), &to);
    assert!(
        to.join("gone/deep/file").exists(),
        "without --delete nothing is removed"
    );
    let kept = copy(&["--delete", "--exclude", "log"], &from.join(""), &to);
    assert_eq!(kept["removed"], 3, "{kept}");
    assert!(
        to.join("kept/log").exists(),
        "excluded entries are not removed"
    );
    copy(&["--delete"], &from.join(""), &to);
    tree::assert_same(&from, &to, "");
}

/// A pattern with a leading slash is relative to the copied directory, under any name.
#[test]
fn anchored_patterns_protect_excluded_entries() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("from/build")).unwrap();
    fs::write(at("from/build/new"), "x").unwrap();
    fs::write(at("from/file"), "x").unwrap();
    for name in ["there/from", "renamed"] {
        fs::create_dir_all(at(name).join("build")).unwrap();
        fs::write(at(name).join("build/old"), "x").unwrap();
        fs::write(at(name).join("extra"), "x").unwrap();
    }
    let options = ["--delete", "--exclude", "/build"];
    copy(&options, &at("from"), &at("there"));
    copy(&options, &at("from/"), &at("renamed"));
    for name in ["there/from", "renamed"] {
        let all: Vec<_> = tree::listing(&at(name)).into_keys().collect();
        let wanted = ["build", "build/old", "file"].map(PathBuf::from);
        assert_eq!(all, wanted, "{name}");
    }
}

/// After a kill of any process at any time, the next run completes the copy.
#[test]
fn completes_a_copy_after_a_kill_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    tree::make(&from, 0);
    fs::write(from.join("large"), bytes(77, 24 * BLOCK)).unwrap();
    for round in 0..12_u64 {
        let to = folder.path().join(format!("to{round}"));
        let mut child = command(&["--streams", "3"], &from.join(""), &to);
        child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 400));
        match (round % 3, &children(child.id())[..]) {
            (0, _) => kill(child.id()),
            (1, [source, _]) => kill(*source),
            (2, [_, target]) => kill(*target),
            _ => {}
        }
        let output = finish(child);
        if round % 3 != 0 {
            // The coordinator restarts the killed endpoint.
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "round {round}: {stderr}");
        }
        copy(&[], &from.join(""), &to);
        tree::assert_same(&from, &to, &format!("round {round}"));
        assert_eq!(
            tree::remaining_internal_files(&to),
            Vec::<PathBuf>::new(),
            "round {round}"
        );
        fs::remove_dir_all(&to).ok();
    }
}

/// The state that a kill leaves between the last block and the rename.
#[test]
fn renames_a_complete_part_file() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let contents = bytes(5, 2 * BLOCK + 9);
    fs::write(&from, &contents).unwrap();
    let version = Version::of_file(&File::open(&from).unwrap()).unwrap();
    let origin = SourceInfo {
        version: (&version).into(),
        length: version.size,
        sparse: false,
    };
    let dir = Dir::new(File::open(folder.path()).unwrap().as_fd()).unwrap();
    let OpenOutcome::Fresh(part) = Part::open(&dir, b"to", &origin).unwrap() else {
        panic!("something is there");
    };
    for (index, block) in (0..).zip(contents.chunks(BLOCK as usize)) {
        let hash = part.blocks().hash(index, block).unwrap();
        part.write(index, block, Some(hash)).unwrap();
    }
    part.commit().unwrap();
    drop(part);
    let done = copy(&[], &from, &to);
    assert_eq!(
        (&done["copied"], &done["sent_bytes"]),
        (&1.into(), &0.into())
    );
    assert_eq!(fs::read(&to).unwrap(), contents);
    assert_eq!(
        tree::remaining_internal_files(folder.path()),
        Vec::<PathBuf>::new()
    );
}

/// Opens a part file, as another copy does that writes another version.
fn open_part(folder: &Path, name: &str) -> Part {
    let other = SourceInfo {
        version: longhaul_store::part::journal::Version::default(),
        length: 3 * BLOCK,
        sparse: false,
    };
    let dir = Dir::new(File::open(folder).unwrap().as_fd()).unwrap();
    let OpenOutcome::Fresh(part) = Part::open(&dir, name.as_bytes(), &other).unwrap() else {
        panic!("something is there");
    };
    part
}

#[test]
fn leaves_a_file_to_another_copy_that_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    for name in ["a", "b"] {
        fs::write(from.join(name), bytes(6, BLOCK + 1)).unwrap();
    }
    let other_copy = open_part(&to, "a");
    let partly = command(&[], &from.join(""), &to).output().unwrap();
    let stderr = String::from_utf8_lossy(&partly.stderr);
    assert!(stderr.contains("a: another copy is writing it"), "{stderr}");
    assert_eq!(partly.status.code(), Some(1));
    assert!(to.join("b").exists() && !to.join("a").exists());
    drop(other_copy);
    copy(&[], &from.join(""), &to);
    tree::assert_same(&from, &to, "");
}

/// The other copy keeps its journal until it has recorded the hashes.
#[test]
fn counts_an_unchanged_file_while_another_copy_holds_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, bytes(6, BLOCK + 1)).unwrap();
    copy(&[], &from, &to);
    let other_copy = open_part(folder.path(), "to");
    let again = copy(&[], &from, &to);
    assert_eq!(
        (&again["unchanged"], &again["failed"]),
        (&1.into(), &0.into())
    );
    drop(other_copy);
    copy(&[], &from, &to);
    assert_eq!(
        tree::remaining_internal_files(folder.path()),
        Vec::<PathBuf>::new()
    );
}

/// Creates a script in place of ssh. It ignores the host, prints the output of a login, and runs the program locally.
fn ssh_script(folder: &Path) -> String {
    let script = folder.join("ssh");
    let text = "#!/bin/sh\necho Welcome!\nshift 2\n\
                SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

#[test]
fn copies_to_and_from_a_remote_host() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    tree::make(&from, 0);
    let there = |path: &Path| PathBuf::from(format!("far:{}/", path.display()));
    let (pushed, pulled) = (folder.path().join("pushed"), folder.path().join("pulled"));
    let ssh = ssh_script(folder.path());
    let program = longhaul_testprograms::longhaul();
    let options = [
        "--ssh",
        &ssh,
        "--remote-program",
        program,
        "--ports",
        "20000-29999",
    ];
    copy(&options, &from.join(""), &there(&pushed));
    copy(&options, &there(&from), &pulled);
    tree::assert_same(&pushed, &from, "");
    tree::assert_same(&pulled, &from, "");
}

fn refused(arguments: &[&str], code: i32) -> String {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.arg("copy").args(arguments);
    assert_refused(&command.output().unwrap(), code, &[])
}

#[test]
fn refuses_invalid_sources_and_hosts_before_any_change() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("file"), "x").unwrap();
    let stderr = refused(&[&at("nothing"), &at("new")], 2);
    assert!(
        stderr.contains("nothing") && stderr.contains("No such file"),
        "{stderr}"
    );
    refused(&[&at("nothing/"), &at("new")], 2);
    let stderr = refused(&["near:a", "far:b", "c"], 2);
    assert!(
        stderr.contains("sources are on near and on far"),
        "{stderr}"
    );
    assert!(refused(&[&at("file")], 2).contains("SRC"));
    fs::create_dir(at("dir")).unwrap();
    let stderr = refused(&[&at("dir/"), &at("file")], 2);
    assert!(stderr.contains("file is not a directory"), "{stderr}");
    let stderr = refused(&["--dry-run", &at("dir/"), &at("file")], 2);
    assert!(stderr.contains("file is not a directory"), "{stderr}");
    let stderr = refused(&["--exclude", "[", &at("file"), &at("new")], 2);
    assert!(stderr.contains("pattern \"[\""), "{stderr}");
    let stderr = refused(&["--ssh", "/nonexistent/ssh", &at("file"), "far:new"], 1);
    assert!(stderr.contains("/nonexistent/ssh"), "{stderr}");
    let stderr = refused(&["--ssh", "false", &at("file"), "far:new"], 1);
    assert!(stderr.contains("no longhaul answers on far"), "{stderr}");
    assert!(!folder.path().join("new").exists());
}

/// The reported length of such files is 0, so that they would be copied as empty files without a message.
#[test]
fn does_not_copy_files_with_data_and_a_reported_length_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(&[], Path::new("/proc/self/status"), folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("status: it has data, although its length is 0"),
        "{stderr}"
    );
    assert!(!folder.path().join("status").exists());
    fs::write(folder.path().join("empty"), "").unwrap();
    copy(
        &[],
        &folder.path().join("empty"),
        &folder.path().join("too"),
    );
}
