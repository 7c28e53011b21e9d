// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of `longhaul copy`, as JSON and as text.

use longhaul_store::{
    entry::Version,
    part::{OpenOutcome, Part, SourceInfo},
    vfs::Dir,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::{fd::AsFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Command, Output, Stdio},
};

const BLOCK: u64 = 4 << 20;

fn run(arguments: &[&str], from: &Path, to: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", longhaul_testprograms::longhaul(), "copy"]);
    command.args(arguments).args([from, to]).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

#[test]
fn json_totals_are_consistent() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let length = 5 * BLOCK + 7;
    fs::write(&from, vec![7; length as usize]).unwrap();
    let arguments = ["--json", "--progress", "--streams", "3"];
    let stderr = lines(&run(&arguments, &from, &to));
    let (last, before) = stderr.split_last().unwrap();
    assert!(!before.is_empty(), "the first comes at once");
    assert!(before.iter().all(|line| line["progress"]["bytes"].is_u64()));
    for (name, value) in [
        ("bytes", length),
        ("sent_bytes", length),
        ("durable_bytes", length),
        ("present_bytes", 0),
        ("copied", 1),
    ] {
        assert_eq!(last[name], value, "{name} of {last}");
    }
    assert!(last["average_bps"].as_u64().unwrap() > 0);
    assert!(last["retransmitted_segments"].is_u64());
    assert!(last.get("limited_by").is_some());
    let again = &lines(&run(&["--json"], &from, &to))[0];
    assert_eq!(
        (&again["present_bytes"], &again["sent_bytes"]),
        (&length.into(), &0.into())
    );
}

/// The state that a kill leaves after the second of three blocks.
#[test]
fn counts_blocks_of_an_earlier_copy_as_there() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let contents = vec![7; 2 * BLOCK as usize + 9];
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
    let block = &contents[BLOCK as usize..2 * BLOCK as usize];
    let hash = part.blocks().hash(1, block).unwrap();
    part.write(1, block, Some(hash)).unwrap();
    part.commit().unwrap();
    drop(part);
    let done = &lines(&run(&["--json"], &from, &to))[0];
    assert_eq!(done["present_bytes"], BLOCK);
    assert_eq!(done["sent_bytes"], BLOCK + 9);
    assert_eq!(done["durable_bytes"], BLOCK + 9);
    assert_eq!(fs::read(&to).unwrap(), contents);
}

#[test]
fn quiet_copies_print_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, "x").unwrap();
    let output = run(&["--quiet"], &from, &to);
    assert!(output.status.success());
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    let output = run(&["--progress"], &from, &to);
    assert_eq!(output.status.code(), Some(2), "--progress needs --json");
}

#[test]
fn interrupted_copies_print_a_line_and_end_by_the_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, vec![7; BLOCK as usize]).unwrap();
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let mut copy = Command::new(longhaul_testprograms::longhaul())
            .args(["copy", "--limit", "100kbit", "--json", "--progress"])
            .args([&from, &to])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(copy.stdout.as_mut().unwrap())
            .read_line(&mut first)
            .unwrap();
        let pid = copy.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
        let output = copy.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("the same command resumes"), "{stderr}");
        assert_eq!(output.status.signal(), Some(number), "{stderr}");
    }
}

#[test]
fn rejects_subcommands_after_options() {
    for (arguments, message) in [
        (vec!["--ssh", "ssh", "jobs"], "longhaul copy jobs"),
        (vec!["--json", "verify", "/tmp"], "longhaul copy verify"),
        (vec!["--json", "/tmp"], "no target"),
    ] {
        let output = Command::new(longhaul_testprograms::longhaul())
            .arg("copy")
            .args(&arguments)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}
