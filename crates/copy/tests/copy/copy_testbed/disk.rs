// SPDX-License-Identifier: MIT OR Apache-2.0
//! File system in a mount namespace of its own. It is unmounted when the value is dropped.

use super::{LoopbackTestbed, finish};
use longhaul_testprograms::{process::Running, wait::wait_for_line};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// File system that only processes in its namespace see mounted.
pub(crate) struct Disk {
    /// Process that keeps the namespace open.
    keeper: Running,
    pub(crate) at: PathBuf,
}

impl Disk {
    /// Runs `mount` with these arguments, on an existing directory.
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
        // Needs root (CAP_SYS_ADMIN).
        wait_for_line(keeper.stdout.take().unwrap(), "mounted\n");
        let keeper = Running(keeper);
        Self { keeper, at }
    }

    /// Returns a command that runs in the mount namespace.
    pub(crate) fn within(&self, testbed: &LoopbackTestbed, program: &str) -> Command {
        let mut command = testbed.within("nsenter");
        command.args(["--mount", "--target", &self.keeper.id().to_string(), "--"]);
        command.arg(program);
        command
    }

    /// Copies the contents of one directory to another, of which either may be on the disk.
    pub(crate) fn copy(&self, testbed: &LoopbackTestbed, from: &Path, to: &Path) -> Output {
        let mut command = self.within(testbed, longhaul_testprograms::longhaul());
        command.args(["copy", "--json"]).arg(from.join("")).arg(to);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap())
    }

    /// Returns the path of the mount point for processes outside the namespace.
    pub(crate) fn outside_path(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.at.strip_prefix("/").unwrap())
    }
}
