// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bad input of `longhaul tap capture` and `live`: one clear line, exit code 2, and no file changed.

use longhaul_testprograms::process::assert_refused;
use std::process::{Command, Output};

fn capture(args: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "capture"])
        .args(args)
        .output()
        .unwrap()
}

/// Asserts that the command fails with exit code 2 and a message that has all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    assert_refused(&capture(args), 2, words);
}

#[test]
fn names_the_bad_flag() {
    let to = ["-w", "/dev/null"];
    let with = |flags: &[&'static str]| [flags, &to].concat();
    refused(&with(&["-i", "lo", "-i", "lo"]), &["lo is given twice"]);
    refused(
        &with(&["-i", "lo", "--filter", "tcp prot 80"]),
        &["tcp prot 80", "syntax error"],
    );
    refused(
        &with(&["-i", "lo", "--filter", "vlan 7"]),
        &["vlan 7", "without their VLAN tags"],
    );
    refused(
        &with(&["-i", "lo", "--filter-bpf", "4,6 0 0"]),
        &[
            "--filter-bpf \"4,6 0 0\"",
            "tcpdump -ddd",
            "not an instruction",
        ],
    );
    refused(
        &with(&["-i", "lo", "--filter-bpf", "foo"]),
        &["--filter-bpf \"foo\"", "number of instructions"],
    );
    refused(&with(&["-i", "lo", "--snap-length", "10"]), &["10", "64"]);
    refused(
        &with(&["-i", "lo", "--ring", "1KB"]),
        &["--ring 1 KB", "512KiB"],
    );
    refused(&with(&["-i", "lo", "--ring", "5GB"]), &["2GiB"]);
    refused(
        &with(&["-i", "lo", "--netns", "longhaul-no-such-place"]),
        &["longhaul-no-such-place", "ip netns add"],
    );
    refused(&with(&["-i", "lo", "--files", "3"]), &["--rotate"]);
    refused(
        &with(&["-i", "lo", "--rotate", "1KB"]),
        &["--rotate 1KB: choose 1MB or more"],
    );
    refused(
        &["-i", "lo", "--rotate", "1MB", "-w", "-"],
        &["standard output"],
    );
    refused(&["-i", "lo", "--json", "-w", "-"], &["standard output"]);
}

#[test]
fn refuses_to_overwrite_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.pcapng");
    std::fs::write(&file, "precious").unwrap();
    let file_name = file.to_str().unwrap();
    refused(&["-i", "lo", "-w", file_name], &["trace.pcapng", "--force"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn names_missing_interface_or_capability() {
    let output = capture(&["-i", "nosuch0", "-w", "/dev/null"]);
    let message = String::from_utf8(output.stderr).unwrap();
    let (code, word) = if rustix::process::geteuid().is_root() {
        (2, "nosuch0")
    } else {
        (3, "CAP_NET_RAW")
    };
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(word), "{message}");
}
