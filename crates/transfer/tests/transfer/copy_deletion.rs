// SPDX-License-Identifier: MIT OR Apache-2.0
//! `copy --delete` removes what the source does not have, and refuses what looks like an accident. On file systems that
//! ignore case or normalise names, it removes nothing that the source has.

use crate::copy_testbed::mounted::Mounted;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// Source and target of copies.
struct Pair {
    temp: TempDir,
    _mounted: Option<Mounted>,
}

impl Pair {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("src")).unwrap();
        Self {
            temp,
            _mounted: None,
        }
    }

    /// The target is on a file system with these quirks.
    fn mounted(quirks: &[&str]) -> Self {
        let pair = Self::new();
        let [top, at] = ["top", "dst"].map(|name| pair.temp.path().join(name));
        let mounted = Mounted::show(&top, &at, quirks);
        Self {
            _mounted: Some(mounted),
            ..pair
        }
    }

    fn write(&self, path: &str) {
        let path = self.temp.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.file_name().unwrap().as_encoded_bytes()).unwrap();
    }

    fn rename(&self, old: &str, new: &str) {
        fs::rename(self.temp.path().join(old), self.temp.path().join(new)).unwrap();
    }

    fn run(&self, from: &str, arguments: &[&str]) -> Output {
        let mut copy = Command::new(longhaul_testbed::longhaul());
        copy.args(["copy", "--json"]).args(arguments);
        copy.arg(format!("{}/", self.temp.path().join(from).display()));
        copy.arg(self.temp.path().join("dst")).output().unwrap()
    }

    /// Copies `src/`, which succeeds, and returns the counters.
    fn copy(&self, arguments: &[&str]) -> Value {
        let output = self.run("src", arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Copies what is refused; returns why.
    fn refusal(&self, from: &str, arguments: &[&str]) -> String {
        let before = listing(&self.temp.path().join("dst"));
        let output = self.run(from, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        let after = listing(&self.temp.path().join("dst"));
        assert_eq!(before, after, "nothing is touched");
        errors
    }

    fn target(&self) -> Vec<String> {
        listing(&self.temp.path().join("dst")).into_keys().collect()
    }
}

/// Returns the contents of files by their path; directories have none. Internal files are left out.
fn listing(top: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let name = entry.file_name().to_str().unwrap().to_owned();
        if name.starts_with(".longhaul-") {
            continue;
        }
        let below = listing(&entry.path());
        found.extend(
            below
                .into_iter()
                .map(|(path, contents)| (format!("{name}/{path}"), contents)),
        );
        found.insert(name, fs::read(entry.path()).unwrap_or_default());
    }
    found
}

#[test]
fn empty_source_is_refused_until_confirmed() {
    let pair = Pair::new();
    for name in ["dst/a", "dst/sub/b"] {
        pair.write(name);
    }
    let why = pair.refusal("src", &["--delete"]);
    assert!(
        why.contains("the source is empty") && why.contains("--max-delete 3"),
        "{why}"
    );
    assert_eq!(
        pair.copy(&[])["removed"],
        0,
        "nothing is refused without --delete"
    );
    assert_eq!(
        pair.copy(&["--delete", "--max-delete", "100%"])["removed"],
        3
    );
    assert_eq!(
        pair.copy(&["--delete"])["removed"],
        0,
        "an empty target, too"
    );
}

#[test]
fn source_that_seems_another_directory_is_refused() {
    let pair = Pair::new();
    for number in 0..20 {
        pair.write(&format!("src/{number}"));
        pair.write(&format!("dst/{number}"));
        pair.write(&format!("dst/sub/{number}"));
    }
    let why = pair.refusal("src", &["--delete"]);
    assert!(why.contains("21 of 41 entries"), "{why}");
    // Another directory, with few entries.
    pair.write("other/x");
    let why = pair.refusal("other", &["--delete"]);
    assert!(why.contains("41 of 41 entries"), "{why}");
    let planned = pair.run("src", &["--delete", "--dry-run"]);
    let text = String::from_utf8(planned.stderr).unwrap();
    assert!(
        planned.status.success() && text.contains("21 of 41"),
        "{text}"
    );
    for limit in ["20", "51%", "0"] {
        let why = pair.refusal("src", &["--delete", "--max-delete", limit]);
        assert!(
            why.contains("more than --max-delete allows"),
            "{limit}: {why}"
        );
    }
    assert_eq!(
        pair.copy(&["--delete", "--max-delete", "52%"])["removed"],
        21
    );
    assert_eq!(pair.target().len(), 20);
    for invalid in ["-1", "101%", "%", "many"] {
        pair.refusal("src", &["--delete", &format!("--max-delete={invalid}")]);
    }
    pair.refusal("src", &["--max-delete", "5"]);
}

#[test]
fn usual_deletions_need_no_confirmation() {
    let pair = Pair::new();
    pair.write("src/only");
    pair.copy(&[]);
    pair.rename("src/only", "src/renamed");
    assert_eq!(pair.copy(&["--delete"])["removed"], 1);
    for number in 0..10 {
        pair.write(&format!("dst/old{number}"));
    }
    assert_eq!(pair.copy(&["--delete"])["removed"], 10);
    // Excluded entries and internal files are neither removed nor counted.
    for number in 0..30 {
        pair.write(&format!("dst/{number}.keep"));
    }
    pair.write("dst/extra");
    assert_eq!(
        pair.copy(&["--delete", "--exclude", "*.keep"])["removed"],
        1
    );
}

#[test]
fn trash_keeps_what_was_removed() {
    let pair = Pair::new();
    for name in [
        "src/stays",
        "dst/stays",
        "dst/a",
        "dst/sub/deep/b",
        "dst/sub/c.keep",
    ] {
        pair.write(name);
    }
    let dst = pair.temp.path().join("dst");
    let removed =
        pair.copy(&["--delete", "--trash", "1h", "--exclude", "*.keep"])["removed"].clone();
    assert_eq!(removed, 3, "a, sub/deep and its file");
    assert_eq!(pair.target(), ["stays", "sub", "sub/c.keep"]);
    let times: Vec<_> = fs::read_dir(dst.join(".longhaul-trash")).unwrap().collect();
    let kept = listing(&times[0].as_ref().unwrap().path());
    let paths: Vec<_> = kept.keys().map(String::as_str).collect();
    assert_eq!(paths, ["a", "sub", "sub/deep", "sub/deep/b"]);
    assert_eq!(kept["a"], b"a");
    // What is older goes with the next copy.
    fs::create_dir_all(dst.join(".longhaul-trash/1000/old/deep")).unwrap();
    fs::write(dst.join(".longhaul-trash/1000/.longhaul-1.part"), "").unwrap();
    assert_eq!(
        pair.copy(&["--delete", "--trash", "1h"])["removed"],
        2,
        "sub and c.keep"
    );
    assert!(!dst.join(".longhaul-trash/1000").exists());
    assert_eq!(listing(&times[0].as_ref().unwrap().path()).len(), 4);
    pair.refusal("src", &["--trash", "1h"]);
}

/// With --delete, an entry of another type makes way, as with rsync. Without it, it stays.
#[test]
fn changes_of_type_are_followed_with_delete() {
    for arguments in [&["--delete"][..], &["--delete", "--trash", "1h"]] {
        let pair = Pair::new();
        for name in ["src/was-file/in", "src/was-link/in", "src/same"] {
            pair.write(name);
        }
        pair.write("src/was-directory");
        let at = |name: &str| pair.temp.path().join(name);
        symlink("same", at("src/link-was-directory")).unwrap();
        for name in [
            "dst/was-file",
            "dst/was-directory/a/b",
            "dst/link-was-directory/c",
        ] {
            pair.write(name);
        }
        symlink("/etc", at("dst/was-link")).unwrap();
        let refused = pair.run("src", &[]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(at("dst/was-directory/a/b").exists() && at("dst/was-file").is_file());
        // was-file, was-link; two directories with three entries.
        assert_eq!(pair.copy(arguments)["removed"], 7);
        assert_eq!(
            pair.target(),
            listing(&at("src")).into_keys().collect::<Vec<_>>()
        );
        assert!(at("dst/link-was-directory").is_symlink());
        assert!(at("dst/was-link").symlink_metadata().unwrap().is_dir());
        assert_eq!(pair.copy(arguments)["copied"], 0);
    }
}

/// The contents of such a directory count as removed.
#[test]
fn large_directory_does_not_make_way_for_a_file_by_accident() {
    let pair = Pair::new();
    pair.write("src/data");
    for number in 0..20 {
        pair.write(&format!("dst/data/{number}"));
    }
    let why = pair.refusal("src", &["--delete"]);
    assert!(why.contains("--max-delete 21 allows it"), "{why}");
    // An excluded entry keeps its directory, and so its place.
    let kept = ["--delete", "--max-delete=100%", "--exclude=19"];
    assert_eq!(pair.run("src", &kept).status.code(), Some(1));
    assert_eq!(pair.target(), ["data", "data/19"]);
}

/// `mv File file` at the source: to the target's file system, both are one entry.
#[test]
fn rename_by_case_removes_nothing() {
    let pair = Pair::mounted(&["fold"]);
    for name in ["src/File", "src/Dir/Inner", "src/gone"] {
        pair.write(name);
    }
    pair.copy(&["--delete"]);
    pair.rename("src/File", "src/file");
    pair.rename("src/Dir", "src/dir");
    pair.rename("src/dir/Inner", "src/dir/inner");
    fs::remove_file(pair.temp.path().join("src/gone")).unwrap();
    assert_eq!(pair.copy(&["--delete"])["removed"], 1);
    assert_eq!(pair.target(), ["dir", "dir/inner", "file"]);
    let again = pair.copy(&["--delete"]);
    assert_eq!(
        (&again["copied"], &again["removed"]),
        (&0.into(), &0.into())
    );
}

/// The target's file system stores names decomposed, and lists them so.
#[test]
fn normalised_names_are_neither_removed_nor_copied_again() {
    let pair = Pair::mounted(&["nfd"]);
    for name in ["src/\u{e9}", "src/\u{e9}t\u{e9}/x", "src/plain"] {
        pair.write(name);
    }
    pair.copy(&["--delete"]);
    for _ in 0..2 {
        let again = pair.copy(&["--delete"]);
        assert_eq!(
            (&again["copied"], &again["removed"]),
            (&0.into(), &0.into())
        );
        assert_eq!(
            pair.target(),
            [
                "e\u{301}",
                "e\u{301}te\u{301}",
                "e\u{301}te\u{301}/x",
                "plain"
            ]
        );
    }
}

/// Two sources of one name: the second is named, and neither removes the other.
#[test]
fn names_that_the_target_takes_for_one_are_reported() {
    let pair = Pair::mounted(&["fold"]);
    for name in [
        "src/README",
        "src/readme",
        "src/Dir/a",
        "src/dir/b",
        "src/x",
    ] {
        pair.write(name);
    }
    for arguments in [&[][..], &["--delete"], &["--delete"]] {
        let output = pair.run("src", arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("readme: not copied") && errors.contains("README"),
            "{errors}"
        );
        assert!(errors.contains("dir: not copied"), "{errors}");
        let found = listing(&pair.temp.path().join("dst"));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["Dir", "Dir/a", "README", "x"]);
        assert_eq!(found["README"], b"README");
    }
    // The tree of an earlier version, which merged both.
    pair.write("dst/Dir/b");
    pair.run("src", &["--delete"]);
    assert!(pair.target().contains(&"Dir/b".to_owned()));
}
