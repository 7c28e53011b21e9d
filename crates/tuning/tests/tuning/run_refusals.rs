// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul run` refuses: one clear line, and the program does not run.

use crate::{
    cc_host::Host,
    run_program::{command, may_run},
};
use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    process::Command,
};

/// Refused with this code and one line that holds all of `words`; the program would print.
fn refused(code: i32, flags: &[&str], words: &[&str]) {
    let output = command(flags, &["echo", "it ran"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
    assert!(output.stdout.is_empty(), "{flags:?}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn values_out_of_range_are_named() {
    refused(2, &["--pace", "35gbit"], &["--pace", "34gbit"]);
    refused(2, &["--gap", "2s"], &["--gap", "100ns to 1s"]);
    refused(2, &["--cwnd-cap", "1KB"], &["--cwnd-cap", "4KiB"]);
    refused(2, &["--initial-window", "0"], &["1 to 1024"]);
    refused(2, &["--pace", "fast"], &["--pace", "fast"]);
    refused(
        2,
        &["--pace", "1gbit", "--gap", "12us"],
        &["--pace", "--gap"],
    );
}

#[test]
fn names_that_nobody_has_are_named() {
    refused(2, &["--cc", "nobody"], &["nobody", "reno", "lh_scalable"]);
    refused(2, &["--cc", "lh_reno"], &["lh_reno"]);
    refused(2, &["--cc", "reno", "--param", "ai=1"], &["--param", "lh_"]);
    refused(
        2,
        &["--cc", "lh_scalable", "--param", "x=1"],
        &["ai, md_shift"],
    );
    refused(2, &["--user", "no-such-user"], &["no-such-user"]);
    refused(
        2,
        &["--json", "/no/such/directory/r.json"],
        &["/no/such/directory"],
    );
}

#[test]
fn a_missing_program_is_named() {
    for missing in ["no-such-program", "/no/such/program", "/etc/passwd"] {
        let output = command(&[], &[missing]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(missing), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn whoever_may_not_is_told_what_is_missing() {
    if !may_run() {
        return;
    }
    let mut command = command(&["--pace", "1gbit"], &["echo", "it ran"]);
    let output = command.uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("CAP_BPF") && said.lines().count() == 1,
        "{said}"
    );
    assert!(output.stdout.is_empty());
}

/// 1 would be taken for the program's own.
#[test]
fn what_another_longhaul_loaded_is_refused_with_longhauls_code() {
    if !may_run() {
        return;
    }
    // For the turn alone.
    let _host = Host::new();
    let cc = |word| {
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.args(["cc", word, "trc"]).output().unwrap()
    };
    assert!(cc("load").status.success());
    let layout = "/sys/fs/bpf/longhaul/cc/trc/layout";
    let changed = fs::remove_file(layout).and_then(|()| symlink("another", layout));
    let output = command(&["--cc", "lh_trc"], &["echo", "it ran"]).output();
    assert!(cc("unload").status.success());
    changed.unwrap();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("by another longhaul"), "{said}");
    assert!(output.stdout.is_empty());
}
