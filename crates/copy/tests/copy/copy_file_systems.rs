// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets whose file systems keep less than the source's: hard links, attributes, times.

use crate::copy_testbed::mounted::Mounted;
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, UNIX_EPOCH},
};
use tempfile::TempDir;

struct Fixture {
    temp: TempDir,
    mounted: Mounted,
}

impl Fixture {
    /// Source `src` with these files, and a target without what the quirk takes away.
    fn new(quirk: &str, files: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let [source, top, at] = ["src", "top", "at"].map(|name| temp.path().join(name));
        fs::create_dir(&source).unwrap();
        for file in files {
            fs::write(source.join(file), file).unwrap();
        }
        let mounted = Mounted::show(&top, &at, &[quirk]);
        Self { temp, mounted }
    }

    fn source(&self, file: &str) -> PathBuf {
        self.temp.path().join("src").join(file)
    }

    /// Copies, and returns the exit code, the record, and the lines of the standard error.
    fn copy(&self, options: &[&str]) -> (i32, Value, String) {
        let mut copy = Command::new(longhaul_testprograms::longhaul());
        copy.args(["copy", "--json"]).args(options);
        copy.arg(self.source("")).arg(&self.mounted.at);
        let output = copy.output().unwrap();
        let record = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), record, lines)
    }
}

#[test]
fn names_of_one_file_become_files_where_there_are_no_hard_links() {
    let fixture = Fixture::new("no-links", &["a"]);
    fs::hard_link(fixture.source("a"), fixture.source("b")).unwrap();
    let (code, _, why) = fixture.copy(&[]);
    assert!(code == 1 && why.contains("b: "), "{why}");
    assert!(!fixture.mounted.at.join("b").exists());
    let (code, record, why) = fixture.copy(&["--no-hard-links"]);
    assert_eq!((code, &record["copied"]), (0, &1.into()), "{why}");
    for name in ["a", "b"] {
        assert_eq!(fs::read(fixture.mounted.at.join(name)).unwrap(), b"a");
    }
    assert_eq!(fixture.copy(&["--no-hard-links"]).1["copied"], 0);
}

#[test]
fn times_within_the_window_are_the_same() {
    let fixture = Fixture::new("two-seconds", &["odd", "even"]);
    for (file, seconds) in [("odd", 1_000_000_001), ("even", 1_000_000_000)] {
        let time = UNIX_EPOCH + Duration::new(seconds, 5);
        let file = File::options()
            .write(true)
            .open(fixture.source(file))
            .unwrap();
        file.set_modified(time).unwrap();
    }
    fixture.copy(&[]);
    let modified = |name: &str| fs::metadata(fixture.mounted.at.join(name)).unwrap().mtime();
    assert_eq!(modified("odd"), modified("even"));
    assert_eq!(fixture.copy(&["--modify-window", "0"]).1["copied"], 1);
    for _ in 0..2 {
        assert_eq!(fixture.copy(&["--modify-window", "1"]).1["copied"], 0);
    }
    fs::write(fixture.source("odd"), "another size").unwrap();
    assert_eq!(fixture.copy(&["--modify-window", "2"]).1["copied"], 1);
}

#[test]
fn missing_attributes_are_reported_in_each_run() {
    let fixture = Fixture::new("no-xattrs", &["a"]);
    let flags = rustix::fs::XattrFlags::empty();
    let source = fixture.source("a");
    rustix::fs::setxattr(&source, "user.kept", b"1", flags).unwrap();
    let (code, record, first) = fixture.copy(&[]);
    assert_eq!((code, &record["copied"]), (0, &1.into()), "{first}");
    assert!(
        first.contains("a: copied without its attribute user.kept"),
        "{first}"
    );
    for _ in 0..2 {
        let (code, record, again) = fixture.copy(&[]);
        assert_eq!((code, &record["copied"]), (0, &0.into()), "{again}");
        assert!(
            again.contains("a: unchanged, but without its attribute user.kept"),
            "{again}"
        );
    }
}
