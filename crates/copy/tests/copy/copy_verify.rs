// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: compares a copy with its recorded hashes, without the source.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{FileExt, symlink},
    path::Path,
    process::{Command, Output},
};

const BLOCK: usize = 4 << 20;

fn run(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", longhaul_testprograms::longhaul(), "copy"]);
    command.args(arguments).args(paths).output().unwrap()
}

fn copy(arguments: &[&str], from: &Path, to: &Path) {
    let output = run(arguments, &[from, to]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the findings by path, the totals, and the exit code.
fn verify(top: &Path) -> (BTreeMap<String, String>, Value, i32) {
    let output = run(&["verify", "--json"], &[top]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (totals, findings) = lines.split_last().unwrap();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let finding = |line: &Value| {
        let why = text(line, "reason");
        (
            text(line, "path"),
            format!("{} {why}", text(line, "status")).trim().to_owned(),
        )
    };
    let findings = findings.iter().map(finding).collect();
    (findings, totals.clone(), output.status.code().unwrap())
}

fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("dir")).unwrap();
    let lengths = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 17];
    for length in lengths {
        let contents: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        fs::write(top.join(format!("dir/{length}")), contents).unwrap();
    }
    fs::write(top.join("odd \\ name\n"), "odd").unwrap();
    fs::write(top.join("kept"), "kept").unwrap();
    fs::hard_link(top.join("dir/1"), top.join("link")).unwrap();
    symlink("dir/1", top.join("symlink")).unwrap();
}

#[test]
fn names_changed_missing_and_unknown_files() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    make_tree(&from);
    copy(&[], &from.join(""), &to);
    fs::remove_dir_all(&from).unwrap();
    let (findings, totals, code) = verify(&to);
    assert_eq!((findings.len(), code), (0, 0), "{findings:?}");
    assert_eq!(totals["unchanged"], 8);
    assert_eq!(totals["bytes"], 1 + 3 * BLOCK + 5 * BLOCK + 17 + 7);

    let large = format!("dir/{}", 5 * BLOCK + 17);
    let file = File::options().write(true).open(to.join(&large)).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"!", 3 * BLOCK as u64 + 5).unwrap();
    file.set_modified(time).unwrap();
    fs::write(to.join("dir/1"), "x").unwrap();
    fs::write(to.join("dir/0"), "longer").unwrap();
    fs::remove_file(to.join("odd \\ name\n")).unwrap();
    fs::write(to.join("new"), "nobody copied it").unwrap();
    let (findings, totals, code) = verify(&to);
    let wanted = [
        ("dir/0", "differs different size"),
        (
            "dir/1",
            "differs different contents, written since the copy",
        ),
        (
            &large,
            "differs different contents, although size and time are the same: damaged",
        ),
        ("new", "unknown"),
        ("odd \\ name\n", "missing"),
    ];
    let wanted = wanted.map(|(path, finding)| (path.to_owned(), finding.to_owned()));
    assert_eq!(findings, BTreeMap::from(wanted));
    assert_eq!(code, 1);
    assert_eq!(
        (&totals["differ"], &totals["missing"]),
        (&3.into(), &1.into())
    );
}

#[test]
fn ignores_files_that_a_copy_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    make_tree(&from);
    copy(&[], &from.join(""), &to);
    fs::remove_dir_all(from.join("dir")).unwrap();
    copy(&["--delete"], &from.join(""), &to);
    let (findings, _, code) = verify(&to);
    assert_eq!(code, 0, "{findings:?}");
    // Without hashing, the old hash of a changed file is discarded.
    fs::write(from.join("odd \\ name\n"), "another").unwrap();
    copy(&["--hash", "off"], &from.join(""), &to);
    let (findings, _, code) = verify(&to);
    let unknown = findings
        .values()
        .filter(|finding| *finding == "unknown")
        .count();
    assert_eq!((code, unknown), (0, findings.len()), "{findings:?}");
}

/// A copy under a new name has its hashes beside it. For a directory within a copy, they are in a directory above it.
#[test]
fn verifies_any_directory_of_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    make_tree(&from);
    copy(&[], &from, &to);
    for (dir, same) in [
        (to.clone(), 8),
        (to.join("dir"), 6),
        (folder.path().to_owned(), 8),
    ] {
        let (findings, totals, code) = verify(&dir);
        assert_eq!(
            (&totals["unchanged"], code),
            (&same.into(), 0),
            "{findings:?}"
        );
        assert_eq!(totals["missing"], 0);
    }
    fs::write(to.join("dir/1"), "x").unwrap();
    fs::remove_file(to.join("dir/0")).unwrap();
    let (findings, _, code) = verify(&to.join("dir"));
    let named: Vec<&str> = findings.keys().map(String::as_str).collect();
    assert_eq!((named, code), (vec!["0", "1"], 1));
}

#[test]
fn refuses_directories_without_hashes() {
    let folder = tempfile::tempdir().unwrap();
    for top in [folder.path().to_owned(), folder.path().join("nothing")] {
        let output = run(&["verify"], &[&top]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(top.to_str().unwrap()), "{stderr}");
    }
}

#[test]
fn copies_a_file_named_verify() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verify");
    fs::write(&file, "a file of that name").unwrap();
    copy(&[], &file, &folder.path().join("copied"));
}

/// Links, fifos and devices have no hash, independently of the order of their names.
#[test]
fn ignores_hard_links_of_special_files() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", from.join("link")).unwrap();
    let made = Command::new("mkfifo").arg(from.join("fifo")).status();
    assert!(made.unwrap().success());
    for name in ["file", "link", "fifo"] {
        fs::hard_link(from.join(name), from.join(format!("other-{name}"))).unwrap();
    }
    copy(&[], &from.join(""), &to);
    let (findings, totals, code) = verify(&to);
    assert_eq!((findings, code), (BTreeMap::new(), 0), "{totals}");
    // A file that became a hard link of a fifo is a finding.
    fs::remove_file(to.join("other-file")).unwrap();
    fs::remove_file(to.join("file")).unwrap();
    fs::hard_link(to.join("fifo"), to.join("file")).unwrap();
    let (findings, _, code) = verify(&to);
    assert_eq!(code, 1, "{findings:?}");
    assert!(
        findings["file"].contains("not a file any more"),
        "{findings:?}"
    );
}

/// Creates a file of a terabyte, with data in the middle and at the end.
fn make_sparse_file(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(1_000_000_000_000).unwrap();
    for at in [0, 400_000_000_000, 999_999_999_000] {
        file.write_all_at(&[7; 1000], at).unwrap();
    }
}

/// Fails if the blocks of a hole were read at either end: that takes most of an hour.
#[test]
fn holes_are_neither_read_nor_counted_as_read() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    make_sparse_file(&from.join("sparse"));
    copy(&[], &from.join(""), &to);
    copy(&["--checksum"], &from.join(""), &to);
    let (findings, totals, code) = verify(&to);
    assert_eq!((findings.len(), code), (0, 0), "{findings:?}");
    assert!(totals["bytes"].as_u64() <= Some(3 * BLOCK as u64));
    let holes = totals["hole_bytes"].as_u64();
    assert!(holes > Some(999_900_000_000), "{totals}");

    let file = File::options().write(true).open(to.join("sparse")).unwrap();
    file.write_all_at(b"!", 700_000_000_000).unwrap();
    assert_eq!(verify(&to).2, 1);
}

#[test]
fn hard_links_keep_their_hash_when_the_first_name_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    for name in ["b", "large"] {
        let length = if name == "large" { BLOCK + 1 } else { 5 };
        fs::write(from.join(name), vec![1; length]).unwrap();
        fs::hard_link(from.join(name), from.join(format!("{name} link"))).unwrap();
    }
    copy(&[], &from.join(""), &to);
    assert_eq!(verify(&to).1["unchanged"], 2);
    // A name that the user added comes first.
    fs::hard_link(to.join("b link"), to.join("a")).unwrap();
    let (findings, totals, code) = verify(&to);
    assert_eq!((&totals["unchanged"], code), (&3.into(), 0), "{findings:?}");
    fs::remove_file(to.join("a")).unwrap();

    for name in ["b", "large"] {
        fs::remove_file(from.join(name)).unwrap();
    }
    copy(&["--delete"], &from.join(""), &to);
    let (findings, totals, code) = verify(&to);
    assert_eq!((findings.len(), code), (0, 0), "{findings:?}");
    assert_eq!(totals["unchanged"], 2);
    fs::write(to.join("b link"), "other").unwrap();
    assert_eq!(verify(&to).2, 1);
}

/// The state that a kill leaves: hashes are recorded before files get their names.
#[test]
fn files_of_an_interrupted_copy_are_called_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    make_tree(&from);
    copy(&[], &from.join(""), &to);
    let part = |name: &str, kind: &str| {
        let hash = &blake3::hash(name.as_bytes()).to_hex()[..32];
        format!(".longhaul-{hash}.{kind}")
    };
    fs::remove_file(to.join("kept")).unwrap();
    fs::write(to.join(part("kept", "whole")), "").unwrap();
    fs::write(to.join("dir/1"), "2").unwrap();
    fs::write(to.join("dir").join(part("1", "whole")), "").unwrap();
    fs::write(to.join("dir").join(part("not yet", "part")), "").unwrap();
    let (findings, totals, code) = verify(&to);
    let unfinished = "unfinished its copy was interrupted, or is running: run it again, with --delete if its source is gone";
    let new = format!("dir/{}", part("not yet", "part"));
    let wanted = ["kept", "dir/1", &new].map(|path| (path.to_owned(), unfinished.to_owned()));
    assert_eq!(findings, BTreeMap::from(wanted));
    assert_eq!((&totals["unfinished"], code), (&3.into(), 1));
}
