// SPDX-License-Identifier: MIT OR Apache-2.0
//! A namespace of its own for copies over its loopback, whose counters say what went over the wire, and in which
//! nothing may stay.
pub(crate) mod disk;
pub(crate) mod durable;
pub(crate) mod hosts;
pub(crate) mod tree;

use longhaul_linux::{netns::Netns, process::inside};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub(crate) const BLOCK: u64 = 4 << 20;

/// How long anything may take before it counts as hung. Nothing else depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// What a socket of a ground may hold, each way.
pub(crate) const SOCKET_LEN: u64 = 256 << 10;

/// Where copies run.
pub(crate) struct Ground {
    netns: Netns,
    pub(crate) folder: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("copy-{}-{number}", std::process::id());
        let ground = Self {
            netns: Netns::create(&name).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        let up = ground
            .within("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        for setting in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let value = format!("4096 65536 {SOCKET_LEN}");
            longhaul_linux::sysctl::write(&ground.netns, setting, &value).unwrap();
        }
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that runs here.
    pub(crate) fn within(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        inside(&mut command, &self.netns);
        command
    }

    /// A copy, started, from a directory's contents to a directory.
    pub(crate) fn start(&self, arguments: &[&str], from: &Path, to: &Path) -> Child {
        let mut command = self.within(longhaul_testbed::longhaul());
        command.args(["copy", "--json"]).args(arguments);
        command.args([from, to]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Bytes that have gone over the loopback.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.netns.run(read).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("lo:"));
        let received = line.and_then(|line| line.split_whitespace().next());
        received.unwrap().parse().unwrap()
    }

    /// All processes that are here.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let name = self.netns.name().unwrap();
        let output = Command::new("ip").args(["netns", "pids", name]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until all have ended, by themselves.
    pub(crate) fn wait_until_empty(&self) {
        let begin = Instant::now();
        while !self.processes().is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{:?} stay", self.processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Only after a failure there are any.
        self.processes().into_iter().for_each(kill);
        drop(Netns::delete(self.netns.name().unwrap()));
    }
}

/// Waits for a process's end. What hangs has failed.
pub(crate) fn finish(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// The children of a process, first those that it started first.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// SIGKILL. It may have ended by itself.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}
