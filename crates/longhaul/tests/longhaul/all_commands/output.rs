// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on standard error, and output that cannot be written: the disk is full, or the reader is gone. The work is
//! done nevertheless. The command fails only if a part of its result is lost.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn fails_if_standard_output_is_full() {
    let output = longhaul(&["lab", "list"]).stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("standard output: No space left"),
        "{message}"
    );
}

#[test]
fn accepts_a_reader_that_closes_the_pipe() {
    let mut lists = longhaul(&["lab", "list"]);
    let lists = lists.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lists.spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::with_capacity(1, child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn copies_without_a_reader_of_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("from"), "data").unwrap();
    let mut copies = longhaul(&["copy", "--json", &at("from"), &at("to")]);
    let status = copies.stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read(at("to")).unwrap(), b"data");
    let mut refused = longhaul(&["copy", &at("nothing"), &at("new")]);
    let status = refused.stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Names of files may have been chosen by somebody else.
#[test]
fn escapes_terminal_sequences_on_standard_error() {
    let name = "/no/such/\x1b]0;title\x07\u{9b}2J\u{202e}file";
    for arguments in [
        vec!["copy", name, "/tmp/x"],
        vec!["relay", "--config", name],
        vec!["lab", "validate", name],
        vec!["tap", "analyze", "--json", name],
    ] {
        let output = longhaul(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("\\u{1b}]0;title"), "{message:?}");
        for char in ['\x1b', '\x07', '\u{9b}', '\u{202e}'] {
            assert!(!message.contains(char), "{arguments:?}: {message:?}");
        }
    }
}
