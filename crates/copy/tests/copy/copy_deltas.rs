// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of a changed file, only the sections of blocks that differ are sent, and the copy is the same as of a whole file.

use crate::copy_testbed::{BLOCK, tree::bytes};
use serde_json::Value;
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// Length of a section of a file of up to 4 GiB, in bytes.
const SECTION: u64 = 64 << 10;

/// Directory with the file `from/file` of several blocks, which was copied to `to`, as to another host.
struct CopyFixture(TempDir);

impl CopyFixture {
    fn new() -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        let ssh = fixture.path("ssh");
        let text = "#!/bin/sh\nshift 2\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec \"$@\"\n";
        fs::write(&ssh, text).unwrap();
        fs::set_permissions(&ssh, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(fixture.path("from")).unwrap();
        fs::write(fixture.path("from/file"), bytes(1, 4 * BLOCK)).unwrap();
        assert_eq!(fixture.sent(&[]), 4 * BLOCK);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self) -> File {
        File::options()
            .write(true)
            .open(self.path("from/file"))
            .unwrap()
    }

    /// Copies, and returns the bytes of data that were sent. The copy is complete.
    fn sent(&self, arguments: &[&str]) -> u64 {
        let mut copy = Command::new(longhaul_testprograms::longhaul());
        copy.args([
            "copy",
            "--json",
            "--ssh",
            self.path("ssh").to_str().unwrap(),
        ]);
        copy.args(["--remote-program", longhaul_testprograms::longhaul()]);
        copy.args(arguments).arg(self.path("from/"));
        let output = copy
            .arg(format!("far:{}", self.path("to").display()))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let [from, to] = ["from/file", "to/file"].map(|name| fs::read(self.path(name)).unwrap());
        assert!(from == to, "{arguments:?}");
        let times = ["from/file", "to/file"]
            .map(|name| fs::metadata(self.path(name)).unwrap().modified().unwrap());
        assert_eq!(times[0], times[1]);
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        record["sent_bytes"].as_u64().unwrap()
    }

    /// Gives the file another time, as a program does that writes the same again.
    fn touch(&self, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        self.file().set_modified(time).unwrap();
    }
}

#[test]
fn only_blocks_that_differ_are_sent() {
    let fixture = CopyFixture::new();
    fixture.touch(1000);
    assert_eq!(fixture.sent(&[]), 0, "only the time differs");
    fixture.file().write_all_at(b"x", BLOCK + 5).unwrap();
    assert_eq!(fixture.sent(&[]), SECTION, "one byte");
    fixture
        .file()
        .write_all_at(&[7; 3], BLOCK + 2 * SECTION - 1)
        .unwrap();
    assert_eq!(fixture.sent(&[]), 2 * SECTION, "at the end of a section");
    fixture.file().write_all_at(b"x", 4 * BLOCK - 1).unwrap();
    assert_eq!(fixture.sent(&[]), SECTION, "the last byte");
    fixture
        .file()
        .write_all_at(&bytes(2, 1000), 4 * BLOCK)
        .unwrap();
    assert_eq!(fixture.sent(&[]), 1000, "appended");
    fixture
        .file()
        .write_all_at(&bytes(3, BLOCK), 4 * BLOCK)
        .unwrap();
    assert_eq!(fixture.sent(&[]), BLOCK, "the last block became longer");
    let len = 5 * BLOCK + 3 * SECTION;
    fixture
        .file()
        .write_all_at(&bytes(6, SECTION), len - SECTION)
        .unwrap();
    assert_eq!(fixture.sent(&[]), 3 * SECTION, "a new block with a hole");
    fixture.file().write_all_at(&bytes(7, 5), len).unwrap();
    assert_eq!(fixture.sent(&[]), 5, "appended to whole sections");
    fixture.file().write_all_at(&bytes(8, 5), len + 5).unwrap();
    assert_eq!(fixture.sent(&[]), 10, "appended to a section");
    fixture.file().set_len(3 * BLOCK + 7).unwrap();
    assert_eq!(fixture.sent(&[]), 0, "cut within a block");
    fixture.file().set_len(2 * BLOCK).unwrap();
    assert_eq!(fixture.sent(&[]), 0, "cut between two blocks");
    let verified = Command::new(longhaul_testprograms::longhaul());
    let mut verified = verified;
    verified.args(["copy", "verify"]).arg(fixture.path("to"));
    assert!(
        verified.output().unwrap().status.success(),
        "the hashes are the new ones"
    );
    fs::write(fixture.path("from/file"), bytes(4, 3 * BLOCK)).unwrap();
    assert_eq!(fixture.sent(&[]), 3 * BLOCK, "all of it");
}

#[test]
fn holes_stay_holes_and_whole_files_are_sent_on_request() {
    let fixture = CopyFixture::new();
    // A hole in the place of data, and data in the place of a hole.
    fixture.file().set_len(BLOCK).unwrap();
    fixture.file().set_len(4 * BLOCK).unwrap();
    assert_eq!(fixture.sent(&[]), 0);
    fixture
        .file()
        .write_all_at(&bytes(5, BLOCK), 2 * BLOCK)
        .unwrap();
    assert_eq!(fixture.sent(&[]), BLOCK);
    for (seconds, arguments) in [
        (1, &["--whole-file"][..]),
        (2, &["-W"]),
        (3, &["--hash", "off"]),
    ] {
        fixture.touch(seconds);
        assert_eq!(fixture.sent(arguments), 2 * BLOCK, "{arguments:?}");
    }
}
