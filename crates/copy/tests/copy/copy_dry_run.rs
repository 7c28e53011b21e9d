// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --dry-run`: prints what a copy then does, and changes nothing.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

fn copy(arguments: &[&str], from: &Path, to: &Path) -> Vec<Value> {
    let mut command = Command::new("timeout");
    command.args(["120", longhaul_testprograms::longhaul(), "copy", "--json"]);
    let output = command.args(arguments).args([from, to]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

/// Returns all paths with their change times, which any change updates.
fn state(top: &Path) -> BTreeSet<(String, i64, i64)> {
    let mut all = BTreeSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.to_string_lossy().into_owned();
        all.insert((name, meta.ctime(), meta.ctime_nsec()));
        if meta.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    all
}

fn planned(lines: &[Value], action: &str) -> BTreeSet<String> {
    let of = lines.iter().filter(|line| line["action"] == action);
    of.map(|line| line["path"].as_str().unwrap().to_owned())
        .collect()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn prints_the_actions_and_performs_none() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(from.join("dir/deep")).unwrap();
    for name in ["same", "dir/longer", "dir/deep/mode"] {
        fs::write(from.join(name), name).unwrap();
    }
    copy(&[], &from.join(""), &to);
    fs::write(from.join("dir/longer"), "longer than it was").unwrap();
    fs::write(from.join("dir/new"), "new").unwrap();
    fs::hard_link(from.join("dir/new"), from.join("again")).unwrap();
    symlink("same", from.join("link")).unwrap();
    fs::set_permissions(
        from.join("dir/deep/mode"),
        fs::Permissions::from_mode(0o711),
    )
    .unwrap();
    fs::create_dir_all(to.join("extra/deep")).unwrap();
    fs::write(to.join("extra/deep/file"), "x").unwrap();
    fs::write(to.join("kept.log"), "x").unwrap();
    let before = state(&to);
    let arguments = ["--dry-run", "--delete", "--exclude", "*.log"];
    let lines = copy(&arguments, &from.join(""), &to);
    assert_eq!(state(&to), before);
    let made = planned(&lines, "create");
    assert_eq!(made, names(&["again", "dir/new", "link"]));
    let changed = planned(&lines, "change");
    assert!(
        changed.is_superset(&names(&["dir/longer", "dir/deep/mode"])),
        "{changed:?}"
    );
    assert!(!changed.contains("same"), "{changed:?}");
    let removed = planned(&lines, "remove");
    assert_eq!(removed, names(&["extra", "extra/deep", "extra/deep/file"]));
    let plan = &lines.last().unwrap()["plan"];
    assert_eq!((&plan["create"], &plan["remove"]), (&3.into(), &3.into()));
    assert_eq!(plan["bytes"], 18 + 3);
    let done = copy(&arguments[1..], &from.join(""), &to);
    assert_eq!(done.last().unwrap()["removed"], 3);
    let rest = copy(&arguments, &from.join(""), &to);
    assert_eq!(rest.len(), 1, "nothing is left to do: {rest:?}");
}

#[test]
fn does_not_create_a_missing_target() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(from.join("dir")).unwrap();
    fs::write(from.join("dir/file"), "x").unwrap();
    let lines = copy(&["--dry-run", "--delete"], &from.join(""), &to);
    assert_eq!(planned(&lines, "create"), names(&["to/dir", "to/dir/file"]));
    assert_eq!(planned(&lines, "remove"), names(&[]));
    let lines = copy(&["--dry-run"], &from, &to);
    assert_eq!(
        planned(&lines, "create"),
        names(&["to", "to/dir", "to/dir/file"])
    );
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the source is there: {left:?}");
}
