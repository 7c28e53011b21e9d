// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running `longhaul link` between two network namespaces, which are created for it.

pub mod capture_file;
pub mod traffic;

use crate::{namespace::Namespace, timeouts::await_readable};
use longhaul_linux::netns::Netns;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::{
    io::Read,
    net::IpAddr,
    os::fd::AsFd,
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
};

/// Maximum length of what a link may write to standard error, in bytes.
const STDERR_LEN_MAX: usize = 1 << 16;

/// Two namespaces and the link between them. All are removed on drop.
pub struct Testbed {
    /// Namespace at the left end.
    pub left: Namespace,
    /// Namespace at the right end.
    pub right: Namespace,
    addresses: [IpAddr; 2],
    link: String,
    child: Child,
    stderr: ChildStderr,
    directory: tempfile::TempDir,
}

impl Testbed {
    /// Starts a link `name` between interfaces `wan0` with the given addresses. It reports ten times a second, unless
    /// `flags` have an `--interval`.
    pub fn start(name: &str, addresses: [&str; 2], flags: &[&str]) -> Self {
        let link = format!("{name}-{}", std::process::id());
        let [left, right] = ["l", "r"].map(|end| Namespace::new(&format!("link-{name}-{end}")));
        let directory = tempfile::tempdir().unwrap();
        let ends = [(&left, addresses[0]), (&right, addresses[1])];
        let ends = ends.map(|(netns, address)| format!("{}:wan0:{address}", netns.name()));
        let addresses = addresses.map(|text| text.split('/').next().unwrap().parse().unwrap());
        let mut child = Command::new(longhaul_testprograms::longhaul())
            .args([
                "link", "--name", &link, "--left", &ends[0], "--right", &ends[1],
            ])
            .arg("--counters")
            .arg(directory.path().join("counters.jsonl"))
            .args(interval(flags))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut bed = Self {
            left,
            right,
            addresses,
            link,
            stderr: child.stderr.take().unwrap(),
            child,
            directory,
        };
        wait_until_ready(&mut bed.stderr);
        bed
    }

    /// Returns the address of the left end.
    pub fn left_address(&self) -> IpAddr {
        self.addresses[0]
    }

    /// Returns the address of the right end.
    pub fn right_address(&self) -> IpAddr {
        self.addresses[1]
    }

    /// Runs `longhaul link set`. Returns its exit status.
    pub fn set(&self, key: &str, value: &str) -> ExitStatus {
        self.set_output(key, value).status
    }

    /// Runs `longhaul link set`. Returns its exit status and output.
    pub fn set_output(&self, key: &str, value: &str) -> Output {
        Command::new(longhaul_testprograms::longhaul())
            .args(["link", "set", &self.link, key, value])
            .output()
            .unwrap()
    }

    /// Runs `longhaul link show`.
    pub fn show(&self, flags: &[&str]) -> String {
        let output = Command::new(longhaul_testprograms::longhaul())
            .args(["link", "show", &self.link])
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends the link with SIGINT. Returns what it wrote to standard error after it was ready.
    pub fn stop(mut self) -> String {
        self.stop_successfully()
    }

    /// Ends the link with SIGINT, and reads the file of its counters.
    pub fn records_after_stop(mut self) -> Vec<serde_json::Value> {
        self.stop_successfully();
        let text = std::fs::read_to_string(self.directory.path().join("counters.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Ends the link with SIGINT. Returns its exit status and standard error.
    pub fn stop_with_status(mut self) -> (ExitStatus, String) {
        self.interrupt_and_wait()
    }

    /// Ends the link with SIGINT, and asserts that it succeeds. Returns its standard error.
    fn stop_successfully(&mut self) -> String {
        let (status, text) = self.interrupt_and_wait();
        assert!(status.success(), "{status}: {text}");
        text
    }

    fn interrupt_and_wait(&mut self) -> (ExitStatus, String) {
        self.signal(Signal::INT);
        self.wait()
    }

    /// Sends a signal to the link.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the link's process, until a signal CONT. All of its threads have stopped on return.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_child(&self.child);
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// Deletes the name of the left namespace, as `ip netns del` does.
    pub fn delete_left_namespace(&self) {
        Netns::delete(self.left.name()).unwrap();
    }

    /// Waits until the link ends by itself. Returns its exit status and standard error.
    pub fn wait_for_exit(mut self) -> (ExitStatus, String) {
        self.wait()
    }

    fn wait(&mut self) -> (ExitStatus, String) {
        let text = read_until(&mut self.stderr, |_| false);
        (self.child.wait().unwrap(), text)
    }

    /// Ends the link with SIGKILL.
    pub fn kill(mut self) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The link may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn interval(flags: &[&str]) -> &'static [&'static str] {
    if flags.contains(&"--interval") {
        &[]
    } else {
        &["--interval", "100ms"]
    }
}

fn wait_until_ready(stderr: &mut ChildStderr) {
    let is_ready = |bytes: &[u8]| bytes.ends_with(b"ready\n");
    let text = read_until(stderr, is_ready);
    assert!(is_ready(text.as_bytes()), "longhaul link ended: {text}");
}

/// Reads a link's standard error until `is_enough`, or to its end. It reads single bytes, so that the rest can be read
/// later.
fn read_until(stderr: &mut (impl Read + AsFd), is_enough: impl Fn(&[u8]) -> bool) -> String {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !is_enough(&bytes) {
        await_readable(stderr, "a line of the link");
        if stderr.read(&mut byte).unwrap() == 0 {
            break;
        }
        bytes.extend(byte);
        assert!(bytes.len() < STDERR_LEN_MAX, "a link prints too much");
    }
    String::from_utf8(bytes).unwrap()
}

/// Whether this process may create namespaces and TUN devices. If not, the test fails, or is skipped with
/// ALLOW_SKIP=1.
pub fn may_use_namespaces() -> bool {
    let mut tun = std::fs::OpenOptions::new();
    let tun = tun.read(true).write(true).open("/dev/net/tun");
    crate::namespace::may_use_namespaces()
        && longhaul_testprograms::skip::require(tun.is_ok(), "/dev/net/tun")
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_linux::netns::DIRECTORY;

    #[test]
    #[should_panic(expected = "a link prints too much")]
    fn stops_reading_endless_output() {
        read_until(&mut std::fs::File::open("/dev/zero").unwrap(), |_| false);
    }

    #[test]
    fn failed_start_leaves_no_namespace() {
        if !may_use_namespaces() {
            return;
        }
        let addresses = ["10.66.34.1/30", "10.66.34.2/30"];
        let start = || Testbed::start("absent", addresses, &["--no-such-flag"]);
        assert!(std::panic::catch_unwind(start).is_err());
        let left = format!("link-absent-l-{}-", std::process::id());
        let mut names = std::fs::read_dir(DIRECTORY).unwrap();
        let is_it = |name: &str| name.starts_with(&left);
        assert!(!names.any(|entry| is_it(entry.unwrap().file_name().to_str().unwrap())));
    }
}
