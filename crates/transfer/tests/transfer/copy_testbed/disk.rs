// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file system in a mount namespace of its own, which goes with it.

use super::{Ground, finish};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

pub(crate) struct Disk {
    /// A process that keeps the namespace.
    keeper: Child,
    pub(crate) at: PathBuf,
}

impl Disk {
    /// What `mount` with these arguments brings, at a directory that is there.
    pub(crate) fn mount(arguments: &[&OsStr], at: PathBuf) -> Self {
        let script = "mount \"$@\" && echo mounted && exec cat";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private"]);
        unshare.args(["sh", "-c", script, "sh"]);
        let mut keeper = unshare
            .args(arguments)
            .arg(&at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut from = BufReader::new(keeper.stdout.take().unwrap());
        from.read_line(&mut said).unwrap();
        assert_eq!(said, "mounted\n", "needs root (CAP_SYS_ADMIN)");
        Self { keeper, at }
    }

    /// A program that sees it.
    pub(crate) fn within(&self, ground: &Ground, program: &str) -> Command {
        let mut command = ground.within("nsenter");
        command.args(["--mount", "--target", &self.keeper.id().to_string(), "--"]);
        command.arg(program);
        command
    }

    /// A copy of what is in one directory to another, where either may be on it.
    pub(crate) fn copy(&self, ground: &Ground, from: &Path, to: &Path) -> Output {
        let mut command = self.within(ground, longhaul_testbed::longhaul());
        command.args(["copy", "--json"]).arg(from.join("")).arg(to);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap())
    }

    /// What is on it, as seen from here.
    pub(crate) fn seen(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.at.strip_prefix("/").unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}
