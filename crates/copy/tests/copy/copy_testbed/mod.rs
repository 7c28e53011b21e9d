// SPDX-License-Identifier: MIT OR Apache-2.0
//! Testbed for copies over the loopback interface of a network namespace. Its counters measure the bytes on the wire, and
//! no process may stay in it.
pub(crate) mod disk;
pub(crate) mod durable;
pub(crate) mod hosts;
pub(crate) mod mounted;
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

/// Time after which a process counts as hung. No other result depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Maximum buffer of a socket in a testbed, in bytes, in each direction.
pub(crate) const SOCKET_LEN: u64 = 256 << 10;

/// Network namespace and directory for copies.
pub(crate) struct LoopbackTestbed {
    netns: Netns,
    pub(crate) folder: tempfile::TempDir,
}

impl LoopbackTestbed {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("copy-{}-{number}", std::process::id());
        let testbed = Self {
            netns: Netns::create(&name).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        let up = testbed
            .within("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        for setting in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let value = format!("4096 65536 {SOCKET_LEN}");
            longhaul_linux::sysctl::write(&testbed.netns, setting, &value).unwrap();
        }
        testbed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn within(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        inside(&mut command, &self.netns);
        command
    }

    /// Starts a copy.
    pub(crate) fn start(&self, arguments: &[&str], from: &Path, to: &Path) -> Child {
        let mut command = self.within(longhaul_testbed::longhaul());
        command.args(["copy", "--json"]).args(arguments);
        command.args([from, to]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the bytes that the loopback interface has carried.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.netns.run(read).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("lo:"));
        let received = line.and_then(|line| line.split_whitespace().next());
        received.unwrap().parse().unwrap()
    }

    /// Returns the processes in the namespace.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let name = self.netns.name().unwrap();
        let output = Command::new("ip").args(["netns", "pids", name]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until all processes have exited by themselves.
    pub(crate) fn wait_until_empty(&self) {
        let begin = Instant::now();
        while !self.processes().is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{:?} stay", self.processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for LoopbackTestbed {
    fn drop(&mut self) {
        // Processes are left only after a failure.
        self.processes().into_iter().for_each(kill);
        drop(Netns::delete(self.netns.name().unwrap()));
    }
}

/// Waits for the end of a process. A process that hangs fails the test.
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

/// Returns the children of a process, in the order of their start.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Sends SIGKILL to a process, which may have exited already.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}
