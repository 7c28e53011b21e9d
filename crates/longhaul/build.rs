// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in the binary which source it was built from: the version, and the commit if there is one.

use std::{path::Path, process::Command};

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let full = match commit() {
        Some(commit) => format!("{version}+{commit}"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=LONGHAUL_VERSION={full}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the commit as `git describe` names it, with `-dirty` if files were changed; `None` outside a repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A new commit writes the log of HEAD.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ])
}
