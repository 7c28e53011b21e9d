// SPDX-License-Identifier: MIT OR Apache-2.0
//! `copy --delete` removes what the source does not have, and refuses what looks like an accident. On file systems that
//! ignore case or normalise names, it removes nothing that the source has.

use crate::copy_testbed::mounted::Mounted;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// Source and target of copies.
struct CopyFixture {
    temp: TempDir,
    _mounted: Option<Mounted>,
}

impl CopyFixture {
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
        let fixture = Self::new();
        let [top, at] = ["top", "dst"].map(|name| fixture.temp.path().join(name));
        let mounted = Mounted::show(&top, &at, quirks);
        Self {
            _mounted: Some(mounted),
            ..fixture
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
        let mut copy = Command::new(longhaul_testprograms::longhaul());
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

    fn verify(&self) {
        let mut verify = Command::new(longhaul_testprograms::longhaul());
        verify
            .args(["copy", "verify"])
            .arg(self.temp.path().join("dst"));
        let output = verify.output().unwrap();
        assert!(output.status.success(), "{output:?}");
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
    let fixture = CopyFixture::new();
    for name in ["dst/a", "dst/sub/b"] {
        fixture.write(name);
    }
    let why = fixture.refusal("src", &["--delete"]);
    assert!(
        why.contains("the source is empty") && why.contains("--max-delete 3"),
        "{why}"
    );
    let planned = fixture.refusal("src", &["--delete", "--dry-run"]);
    assert!(
        planned.contains("nothing would be copied or removed: the source is empty"),
        "{planned}"
    );
    let planned = fixture.run("src", &["--delete", "--dry-run", "--max-delete", "3"]);
    assert!(planned.status.success(), "{planned:?}");
    assert_eq!(
        fixture.copy(&[])["removed"],
        0,
        "nothing is refused without --delete"
    );
    assert_eq!(
        fixture.copy(&["--delete", "--max-delete", "100%"])["removed"],
        3
    );
    assert_eq!(
        fixture.copy(&["--delete"])["removed"],
        0,
        "an empty target, too"
    );
}

#[test]
fn source_that_seems_another_directory_is_refused() {
    let fixture = CopyFixture::new();
    for number in 0..20 {
        fixture.write(&format!("src/{number}"));
        fixture.write(&format!("dst/{number}"));
        fixture.write(&format!("dst/sub/{number}"));
    }
    let why = fixture.refusal("src", &["--delete"]);
    assert!(why.contains("21 of 41 entries"), "{why}");
    // Another directory, with few entries.
    fixture.write("other/x");
    let why = fixture.refusal("other", &["--delete"]);
    assert!(why.contains("41 of 41 entries"), "{why}");
    let planned = fixture.run("src", &["--delete", "--dry-run"]);
    let text = String::from_utf8(planned.stderr).unwrap();
    assert!(text.contains("21 of 41"), "{text}");
    assert_eq!(planned.status.code(), Some(2));
    let actions = String::from_utf8(planned.stdout).unwrap();
    assert_eq!(actions.matches("\"remove\"").count(), 21 + 1, "{actions}");
    for limit in ["20", "51%", "0"] {
        let why = fixture.refusal("src", &["--delete", "--max-delete", limit]);
        assert!(
            why.contains("more than --max-delete allows"),
            "{limit}: {why}"
        );
    }
    assert_eq!(
        fixture.copy(&["--delete", "--max-delete", "52%"])["removed"],
        21
    );
    assert_eq!(fixture.target().len(), 20);
    for invalid in ["-1", "101%", "%", "many"] {
        fixture.refusal("src", &["--delete", &format!("--max-delete={invalid}")]);
    }
    fixture.refusal("src", &["--max-delete", "5"]);
}

#[test]
fn usual_deletions_need_no_confirmation() {
    let fixture = CopyFixture::new();
    fixture.write("src/only");
    fixture.copy(&[]);
    fixture.rename("src/only", "src/renamed");
    assert_eq!(fixture.copy(&["--delete"])["removed"], 1);
    for number in 0..10 {
        fixture.write(&format!("dst/old{number}"));
    }
    assert_eq!(fixture.copy(&["--delete"])["removed"], 10);
    // Excluded entries and internal files are neither removed nor counted.
    for number in 0..30 {
        fixture.write(&format!("dst/{number}.keep"));
    }
    fixture.write("dst/extra");
    assert_eq!(
        fixture.copy(&["--delete", "--exclude", "*.keep"])["removed"],
        1
    );
}

#[test]
fn trash_keeps_what_was_removed() {
    let fixture = CopyFixture::new();
    for name in [
        "src/stays",
        "dst/stays",
        "dst/a",
        "dst/sub/deep/b",
        "dst/sub/c.keep",
    ] {
        fixture.write(name);
    }
    let dst = fixture.temp.path().join("dst");
    fs::set_permissions(dst.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
    let removed =
        fixture.copy(&["--delete", "--trash", "1h", "--exclude", "*.keep"])["removed"].clone();
    assert_eq!(removed, 3, "a, sub/deep and its file");
    assert_eq!(fixture.target(), ["stays", "sub", "sub/c.keep"]);
    let times: Vec<_> = fs::read_dir(dst.join(".longhaul-trash")).unwrap().collect();
    let kept = listing(&times[0].as_ref().unwrap().path());
    let paths: Vec<_> = kept.keys().map(String::as_str).collect();
    assert_eq!(paths, ["a", "sub", "sub/deep", "sub/deep/b"]);
    assert_eq!(kept["a"], b"a");
    let trash = times[0].as_ref().unwrap().path();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&trash.join("sub")), 0o755);
    assert_eq!(mode(trash.parent().unwrap()), 0o700);
    // What is older goes with the next copy.
    fs::create_dir_all(dst.join(".longhaul-trash/1000/old/deep")).unwrap();
    fs::write(dst.join(".longhaul-trash/1000/.longhaul-1.part"), "").unwrap();
    assert_eq!(
        fixture.copy(&["--delete", "--trash", "1h"])["removed"],
        2,
        "sub and c.keep"
    );
    assert!(!dst.join(".longhaul-trash/1000").exists());
    assert_eq!(listing(&times[0].as_ref().unwrap().path()).len(), 4);
    fixture.refusal("src", &["--trash", "1h"]);
}

/// overlayfs renames no directories of its lower layer. A subvolume is another file system.
#[test]
fn directories_that_cannot_be_renamed_go_to_the_trash_with_their_contents() {
    let fixture = CopyFixture::mounted(&["layers"]);
    for name in ["src/stays", "dst/stays", "dst/dir/a", "dst/dir/sub/b"] {
        fixture.write(name);
    }
    let delete = ["--delete", "--max-delete", "9", "--trash", "1h"];
    assert_eq!(fixture.copy(&delete)["removed"], 4);
    assert_eq!(fixture.target(), ["stays"]);
    let trash = fixture.temp.path().join("dst/.longhaul-trash");
    let kept = || {
        fs::read_dir(&trash)
            .unwrap()
            .map(|time| time.unwrap().path())
    };
    let kept_now: Vec<_> = kept().collect();
    let paths: Vec<_> = listing(&kept_now[0]).into_keys().collect();
    assert_eq!(paths, ["dir", "dir/a", "dir/sub", "dir/sub/b"]);

    fixture.write("dst/new/other layer");
    let output = fixture.run("src", &delete);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("new/other layer: cannot move it into the trash on another"),
        "{errors}"
    );
    assert!(fixture.target().contains(&"new/other layer".to_owned()));
}

/// With --delete, an entry of another type makes way, as with rsync. Without it, it stays.
#[test]
fn changes_of_type_are_followed_with_delete() {
    for arguments in [&["--delete"][..], &["--delete", "--trash", "1h"]] {
        let fixture = CopyFixture::new();
        for name in ["src/was-file/in", "src/was-link/in", "src/same"] {
            fixture.write(name);
        }
        fixture.write("src/was-directory");
        let at = |name: &str| fixture.temp.path().join(name);
        symlink("same", at("src/link-was-directory")).unwrap();
        for name in [
            "dst/was-file",
            "dst/was-directory/a/b",
            "dst/link-was-directory/c",
        ] {
            fixture.write(name);
        }
        symlink("/etc", at("dst/was-link")).unwrap();
        let refused = fixture.run("src", &[]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(at("dst/was-directory/a/b").exists() && at("dst/was-file").is_file());
        // was-file, was-link; two directories with three entries.
        assert_eq!(fixture.copy(arguments)["removed"], 7);
        assert_eq!(
            fixture.target(),
            listing(&at("src")).into_keys().collect::<Vec<_>>()
        );
        assert!(at("dst/link-was-directory").is_symlink());
        assert!(at("dst/was-link").symlink_metadata().unwrap().is_dir());
        assert_eq!(fixture.copy(arguments)["copied"], 0);
    }
}

/// The contents of such a directory count as removed.
#[test]
fn changes_of_type_are_planned_as_they_are_made() {
    let fixture = CopyFixture::new();
    for name in [
        "src/stays",
        "dst/stays",
        "src/dir/new",
        "dst/dir",
        "src/file",
    ] {
        fixture.write(name);
    }
    for name in ["dst/file/a", "dst/file/b"] {
        fixture.write(name);
    }
    fixture.refusal("src", &["--delete", "--dry-run", "--max-delete", "3"]);
    let all = ["--delete", "--max-delete", "4"];
    let planned = fixture.run("src", &[&all[..], &["--dry-run"]].concat());
    assert!(planned.status.success(), "{planned:?}");
    let text = String::from_utf8(planned.stdout).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["plan"]["remove"], 4, "{text}");
    assert_eq!(fixture.copy(&all)["removed"], 4);
    fixture.verify();
}

#[test]
fn large_directory_does_not_make_way_for_a_file_by_accident() {
    let fixture = CopyFixture::new();
    fixture.write("src/data");
    for number in 0..20 {
        fixture.write(&format!("dst/data/{number}"));
    }
    let why = fixture.refusal("src", &["--delete"]);
    assert!(why.contains("--max-delete 21 allows it"), "{why}");
    // An excluded entry keeps its directory, and so its place.
    let kept = ["--delete", "--max-delete=100%", "--exclude=19"];
    assert_eq!(fixture.run("src", &kept).status.code(), Some(1));
    assert_eq!(fixture.target(), ["data", "data/19"]);
}

/// `mv File file` at the source: to the target's file system, both are one entry.
#[test]
fn rename_by_case_removes_nothing() {
    let fixture = CopyFixture::mounted(&["fold"]);
    for name in ["src/File", "src/Dir/Inner", "src/gone"] {
        fixture.write(name);
    }
    fixture.copy(&["--delete"]);
    fixture.rename("src/File", "src/file");
    fixture.rename("src/Dir", "src/dir");
    fixture.rename("src/dir/Inner", "src/dir/inner");
    fs::remove_file(fixture.temp.path().join("src/gone")).unwrap();
    assert_eq!(fixture.copy(&["--delete"])["removed"], 1);
    assert_eq!(fixture.target(), ["dir", "dir/inner", "file"]);
    let again = fixture.copy(&["--delete"]);
    assert_eq!(
        (&again["copied"], &again["removed"]),
        (&0.into(), &0.into())
    );
}

/// The target's file system stores names decomposed, and lists them so.
#[test]
fn normalised_names_are_neither_removed_nor_copied_again() {
    let fixture = CopyFixture::mounted(&["nfd"]);
    for name in ["src/\u{e9}", "src/\u{e9}t\u{e9}/x", "src/plain"] {
        fixture.write(name);
    }
    fixture.copy(&["--delete"]);
    for _ in 0..2 {
        let again = fixture.copy(&["--delete"]);
        assert_eq!(
            (&again["copied"], &again["removed"]),
            (&0.into(), &0.into())
        );
        assert_eq!(
            fixture.target(),
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
    let fixture = CopyFixture::mounted(&["fold"]);
    for name in [
        "src/README",
        "src/readme",
        "src/Dir/a",
        "src/dir/b",
        "src/x",
    ] {
        fixture.write(name);
    }
    for arguments in [&[][..], &["--delete"], &["--delete"]] {
        let output = fixture.run("src", arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("readme: not copied") && errors.contains("README"),
            "{errors}"
        );
        assert!(errors.contains("dir: not copied"), "{errors}");
        let found = listing(&fixture.temp.path().join("dst"));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["Dir", "Dir/a", "README", "x"]);
        assert_eq!(found["README"], b"README");
    }
    // The tree of an earlier version, which merged both.
    fixture.write("dst/Dir/b");
    fixture.run("src", &["--delete"]);
    assert!(fixture.target().contains(&"Dir/b".to_owned()));
}

/// A part that no copy continues, as its source file is gone, goes with `--delete`.
#[test]
fn parts_of_files_that_are_gone_are_removed() {
    let fixture = CopyFixture::new();
    let part = "dst/sub/.longhaul-0123456789abcdef0123456789abcdef.part";
    for name in ["src/sub/a", part] {
        fixture.write(name);
    }
    let exists = || fixture.temp.path().join(part).exists();
    fixture.copy(&[]);
    fixture.copy(&["--delete", "--dry-run"]);
    assert!(exists(), "a copy of another source may continue it");
    assert_eq!(fixture.copy(&["--delete"])["removed"], 0);
    assert!(!exists());
}

/// At a site, only the administrator could remove such parts by hand.
#[test]
fn old_parts_go_without_delete() {
    let fixture = CopyFixture::new();
    let part = |number: u32| format!("dst/sub/.longhaul-{number:032x}.part");
    fs::create_dir(fixture.temp.path().join("src/sub")).unwrap();
    fs::write(fixture.temp.path().join("src/sub/large"), vec![1; 5 << 20]).unwrap();
    for (number, days) in [(1, 31), (2, 29)] {
        fixture.write(&part(number));
        let file = fs::File::options()
            .write(true)
            .open(fixture.temp.path().join(part(number)));
        let time = SystemTime::now() - Duration::from_hours(days * 24);
        file.unwrap().set_modified(time).unwrap();
    }
    let exists = |number| fixture.temp.path().join(part(number)).exists();
    assert!(fixture.run("src", &["--dry-run"]).status.success() && exists(1));
    for _ in 0..2 {
        fixture.copy(&[]);
        assert_eq!((exists(1), exists(2)), (false, true));
        fixture.write(&part(3));
    }
    assert!(exists(3));
}

/// sshfs has other inode numbers after each mount, and no birth times.
#[test]
fn copy_to_a_new_name_continues_after_another_mount() {
    let temp = tempfile::tempdir().unwrap();
    let [source, top, at] = ["run", "top", "at"].map(|name| temp.path().join(name));
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("file"), "").unwrap();
    for round in 0..3 {
        let mounted = Mounted::show(&top, &at, &[]);
        for name in 0..round {
            // Inode numbers are given in the order in which entries are looked up.
            fs::write(mounted.at.join(format!("other-{name}")), "").unwrap();
        }
        let mut copy = Command::new(longhaul_testprograms::longhaul());
        let copied = copy.arg("copy").arg(&source).arg(mounted.at.join("copy"));
        let output = copied.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!mounted.at.join("copy/run").exists(), "round {round}");
    }
}

/// The same in a directory that is gone itself, and so goes or makes way.
#[test]
fn directories_with_parts_of_a_killed_copy_are_removed() {
    let fixture = CopyFixture::new();
    let part = ".longhaul-0123456789abcdef0123456789abcdef.part";
    for name in [
        "src/a",
        "src/place",
        &format!("dst/gone/deep/{part}"),
        &format!("dst/place/{part}"),
    ] {
        fixture.write(name);
    }
    fixture.copy(&["--delete", "--max-delete", "100%"]);
    assert_eq!(fixture.target(), ["a", "place"]);
    assert!(!fixture.temp.path().join("dst/gone").exists());
    assert!(fixture.temp.path().join("dst/place").is_file());
}

/// After a change of type, and after deletions that a killed copy did not record.
#[test]
fn hashes_of_what_is_no_file_any_more_are_removed() {
    let fixture = CopyFixture::new();
    for name in ["link", "dir", "tree/1", "stays", "x/1", "x/2", "x/3", "x/4"] {
        fixture.write(&format!("src/{name}"));
    }
    fixture.copy(&[]);
    let source = |name: &str| fixture.temp.path().join("src").join(name);
    fs::remove_file(source("link")).unwrap();
    symlink("stays", source("link")).unwrap();
    fixture.copy(&[]);
    fixture.verify();

    fs::remove_file(source("dir")).unwrap();
    fixture.write("src/dir/inner");
    fs::remove_dir_all(source("tree")).unwrap();
    fixture.write("src/tree");
    fixture.copy(&["--delete"]);
    fixture.verify();

    fs::remove_dir_all(source("x")).unwrap();
    fs::remove_dir_all(fixture.temp.path().join("dst/x")).unwrap();
    fixture.copy(&["--delete"]);
    fixture.verify();
}
