// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy` of files that are written while they are read.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

const LENGTH: usize = 96 << 20;

/// Rate limit of the copies. One pass over a file takes two seconds at least, however seldom the writer runs.
const RATE_LIMIT: &str = "400mbit";

fn command(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", longhaul_testprograms::longhaul(), "copy", "--json"]);
    command.args(["--limit", RATE_LIMIT]);
    command.arg(from).arg(to);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Copies a file, and changes it repeatedly as long as `writes` returns true. Then waits for the end of the copy.
fn copy_while_writing(from: &Path, to: &Path, writes: impl Fn() -> bool) -> Output {
    let mut child = command(from, to).spawn().unwrap();
    let file = File::options().write(true).open(from).unwrap();
    let mut byte = 0_u8;
    while child.try_wait().unwrap().is_none() && writes() {
        byte = byte.wrapping_add(1);
        // Changes the first and the last block.
        file.write_all_at(&[byte], 0).unwrap();
        file.write_all_at(&[byte], LENGTH as u64 - 1).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().unwrap()
}

/// Copies a file and appends to it until the copy ends, also changing its first bytes if `rewrites`. Returns the
/// longest pause between two writes too.
fn copy_while_appending(from: &Path, to: &Path, rewrites: bool) -> (Output, Duration) {
    let mut child = command(from, to).spawn().unwrap();
    let mut file = File::options().append(true).open(from).unwrap();
    let other = File::options().write(true).open(from).unwrap();
    let (mut number, mut last, mut longest_pause) = (0_u64, Instant::now(), Duration::ZERO);
    while child.try_wait().unwrap().is_none() {
        number += 1;
        file.write_all(b"a line\n").unwrap();
        if rewrites {
            // Never twice the same: a block that is as it was read is no change.
            other.write_all_at(&number.to_ne_bytes(), 0).unwrap();
        }
        longest_pause = longest_pause.max(last.elapsed());
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
    }
    (child.wait_with_output().unwrap(), longest_pause)
}

/// As rsync does with a log: what was there at the start.
#[test]
fn copies_the_beginning_of_a_growing_file() {
    for length in [100, LENGTH / 4] {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, vec![7; length]).unwrap();
        let (output, _) = copy_while_appending(&from, &to, false);
        let stderr = stderr(&output);
        assert!(output.status.success(), "{stderr}");
        // A short one may be read between two lines.
        assert!(
            length == 100 || stderr.contains("from: it grew while it was read"),
            "{stderr}"
        );
        let (from, to) = (fs::read(&from).unwrap(), fs::read(&to).unwrap());
        assert!(to.len() >= length && from.starts_with(&to), "{}", to.len());
    }
}

/// Blocks of several states of a file are no copy of it.
#[test]
fn names_a_growing_file_whose_beginning_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // A file system that flushes for others may stop the writer for longer than one pass over the file takes. Then there
    // is nothing to name.
    let steadily_written = (0..5).find_map(|_| {
        fs::write(&from, vec![7; LENGTH]).unwrap();
        let _absent = fs::remove_file(&to);
        let (output, longest_pause) = copy_while_appending(&from, &to, true);
        (longest_pause < Duration::from_secs(1)).then_some(output)
    });
    let output = steadily_written.expect("a copy whose file is written without pauses of a second");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!to.exists());
}

/// A file that is removed between its listing and its reading is no failure, and does not stop deletions.
#[test]
fn vanished_files_have_an_exit_code_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for directory in [&from, &to] {
        fs::create_dir(directory).unwrap();
    }
    for name in ["a", "z"] {
        fs::write(from.join(name), vec![7; LENGTH]).unwrap();
    }
    for number in 0..3 {
        fs::write(to.join(format!("extra{number}")), "").unwrap();
    }
    let mut copy = command(&from.join(""), &to);
    // One stream sends one file after the other, each in two seconds.
    let child = copy
        .args(["--delete", "--max-delete=3", "--streams=1"])
        .spawn()
        .unwrap();
    while fs::read_dir(&to).unwrap().count() < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::remove_file(from.join("z")).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(24), "{stderr}");
    // Before it was listed, or after that.
    assert!(stderr.contains("source: z: "), "{stderr}");
    assert!(stderr.contains("1 vanished at the source"), "{stderr}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&record["vanished"], &record["failed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(record["removed"], 3);
    assert!(to.join("a").exists() && !to.join("z").exists());
}

#[test]
fn copies_a_changed_file_after_the_writes_end() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, vec![7; LENGTH]).unwrap();
    // The target creates a part file when the file is announced.
    let begun = || {
        let names = fs::read_dir(folder.path()).unwrap().flatten();
        let mut names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.any(|name| name.ends_with(".part"))
    };
    let output = copy_while_writing(&from, &to, || !begun());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
}

#[test]
fn names_a_file_that_is_written_all_the_time_and_leaves_no_part() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, vec![7; LENGTH]).unwrap();
    fs::create_dir(&to).unwrap();
    let output = copy_while_writing(&from, &to, || true);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let stderr = stderr(&output);
    assert!(
        stderr.contains("from: it changed each time that it was read"),
        "{stderr}"
    );
    let left = fs::read_dir(&to).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!to.join("from").exists(), "{left:?}");
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".part")),
        "{left:?}"
    );
}
