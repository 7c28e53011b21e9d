// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binary `longhaul` for integration tests.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Returns the path of the binary: that of the environment variable `LONGHAUL`, or the one that this call builds, with
/// the profile of the test program. Tests of an installed longhaul set the variable.
///
/// # Panics
/// If it can't be built.
#[must_use]
pub fn longhaul() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| env::var("LONGHAUL").unwrap_or_else(|_| build()))
}

fn build() -> String {
    let profile = profile();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "longhaul",
        "--bin",
        "longhaul",
    ]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "cargo cannot build longhaul");
    let path = profile.join("longhaul").into_os_string();
    path.into_string().expect("a path in UTF-8")
}

/// Returns the directory of the profile, for instance `target/debug`: test programs are in its `deps`.
fn profile() -> PathBuf {
    let program = env::current_exe().expect("the path of this program");
    let is_profile =
        |directory: &&Path| directory.ends_with("debug") || directory.ends_with("release");
    let profile = program.ancestors().find(is_profile);
    profile.expect("a test program of cargo").to_owned()
}
