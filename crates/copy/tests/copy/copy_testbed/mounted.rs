// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directory that is shown as file systems of other kinds show it, by FUSE. It is unmounted when the value is dropped.

use longhaul_testprograms::{process::Running, wait::wait_until};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) struct Mounted {
    server: Running,
    pub(crate) at: PathBuf,
}

impl Mounted {
    /// Shows the directory `top` at `at`. Both are created if they are missing.
    pub(crate) fn show(top: &Path, at: &Path, quirks: &[&str]) -> Self {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/copy/copy_testbed/mounted.py"
        );
        for directory in [top, at] {
            fs::create_dir_all(directory).unwrap();
        }
        let before = fs::metadata(at).unwrap().dev();
        // The distribution's Python, which has fusepy.
        let mut server = Command::new("/usr/bin/python3");
        let server = server.arg(script).args([top, at]).args(quirks).spawn();
        let server = server.expect("python3, fusepy (scripts/setup installs them)");
        let mut mounted = Self {
            server: Running(server),
            at: at.to_owned(),
        };
        wait_until(|| {
            assert_eq!(mounted.server.try_wait().unwrap(), None);
            fs::metadata(at).is_ok_and(|found| found.dev() != before)
        });
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        drop(unmount.arg("--lazy").arg(&self.at).status());
    }
}
