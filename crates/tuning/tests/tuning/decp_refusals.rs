// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of `longhaul decp`, before anything is changed.

use longhaul_testprograms::process::assert_refused;
use std::process::{Command, Output};

fn decp(flags: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .arg("decp")
        .args(flags)
        .output()
        .unwrap()
}

fn refused(flags: &[&str]) -> String {
    assert_refused(&decp(flags), 2, &[])
}

#[test]
fn names_bad_input() {
    for (flags, says) in [
        (&["--filter", "dport http"][..], "http"),
        (&["--filter", ""], "empty"),
        (&["--filter", "dport 1 or"], "missing"),
        (&["--filter", "dport 1", "--headroom", "0.5%"], "--headroom"),
        (&["--filter", "dport 1", "--interval", "1ms"], "--interval"),
        (
            &["--filter", "dport 1", "--netns", "no-such-namespace"],
            "no-such-namespace",
        ),
        (
            &["--filter", "dport 1", "--cgroup", "/no/such/cgroup"],
            "/no/such/cgroup",
        ),
        (&["--filter", "dport 1", "--cgroup", "/tmp"], "/tmp"),
    ] {
        let message = refused(flags);
        assert!(message.contains(says), "{flags:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "one line: {message}");
    }
    assert!(refused(&[]).contains("--filter"));
    assert!(refused(&["--filter", "dport 1", "--cap-min", "1"]).contains("--cap-min"));
}

#[test]
fn names_missing_rights_and_dry_run_needs_none() {
    if !rustix::process::geteuid().is_root() {
        let output = decp(&["--filter", "dport 1", "--duration", "100ms"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
    let output = decp(&["--filter", "dport 1", "--duration", "100ms", "--dry-run"]);
    assert!(output.status.success(), "{output:?}");
}
