// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of `longhaul run`: one line, and the program does not run.

use crate::{
    cc_host::Host,
    run_program::{command, may_attach_bpf},
};
use longhaul_testprograms::process::assert_refused;
use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    process::Command,
};

/// Asserts a refusal with this code and one line that contains all of `words`; the program would print.
fn refused(code: i32, flags: &[&str], words: &[&str]) {
    let output = command(flags, &["echo", "it ran"]).output().unwrap();
    assert_refused(&output, code, words);
    assert!(output.stdout.is_empty(), "{flags:?}");
}

#[test]
fn names_values_out_of_range() {
    refused(
        2,
        &["--pacing-rate", "35gbit"],
        &["--pacing-rate 35", "34gbit"],
    );
    refused(
        2,
        &["--inter-packet-gap", "2s"],
        &["--inter-packet-gap 2s", "100ns to 1s"],
    );
    refused(2, &["--cwnd-cap", "1KB"], &["--cwnd-cap 1KB", "4KiB"]);
    refused(2, &["--initial-window", "0"], &["1 to 1024"]);
    refused(2, &["--pacing-rate", "fast"], &["--pacing-rate", "fast"]);
    refused(
        2,
        &["--pacing-rate", "1gbit", "--inter-packet-gap", "12us"],
        &["--pacing-rate", "--inter-packet-gap"],
    );
}

#[test]
fn refuses_unknown_names() {
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
fn names_an_unknown_flag() {
    refused(2, &["--pacing", "1gbit"], &["--pacing", "--pacing-rate"]);
}

#[test]
fn names_a_missing_program() {
    for missing in ["no-such-program", "/no/such/program", "/etc/passwd"] {
        let output = command(&[], &[missing]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(missing), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn names_missing_capability() {
    if !may_attach_bpf() {
        return;
    }
    let mut command = command(&["--pacing-rate", "1gbit"], &["echo", "it ran"]);
    let output = command.uid(65534).gid(65534).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("CAP_BPF") && message.lines().count() == 1,
        "{message}"
    );
    assert!(output.stdout.is_empty());
}

/// Exit code 1 would look like the program's own.
#[test]
fn refuses_algorithm_of_another_build_with_exit_code_3() {
    if !may_attach_bpf() {
        return;
    }
    // Held only for its lock.
    let _host = Host::new();
    let cc = |word| {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["cc", word, "trc"]).output().unwrap()
    };
    assert!(cc("load").status.success());
    let layout = "/sys/fs/bpf/longhaul/cc/trc/layout";
    let changed = fs::remove_file(layout).and_then(|()| symlink("another", layout));
    let output = command(&["--cc", "lh_trc"], &["echo", "it ran"]).output();
    assert!(cc("unload").status.success());
    changed.unwrap();
    let output = output.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("by another longhaul"), "{message}");
    assert!(output.stdout.is_empty());
}
