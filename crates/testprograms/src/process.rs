// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of tests, and what a command returned.

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use std::{
    env, fs,
    ops::{Deref, DerefMut},
    process::{Child, Output},
};

/// Child process, killed on drop.
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the children of a process, in the order of their start.
pub fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let pids = text.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns whether a process has ended: it does not exist, or is a zombie.
pub fn has_ended(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = text.rsplit(") ").next();
    state.is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// Sends a signal to a process, which may have ended already.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process number");
    let sent = kill_process(pid, signal);
    assert!(
        matches!(sent, Ok(()) | Err(Errno::SRCH)),
        "{pid:?}: {sent:?}"
    );
}

/// Sends SIGKILL to a process, which may have ended already.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Returns whether a program is installed. If not, the test fails, or is skipped with ALLOW_SKIP=1.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.any(|folder| folder.join(program).exists());
    crate::skip::require(found, program)
}

/// Returns the exit code of a command, and its standard output and error.
pub fn exit_code_and_text(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let code = output.status.code().expect("no signal");
    (code, String::from_utf8(text).unwrap())
}

/// Asserts that a command failed with this exit code, and that standard error has all `words`. Returns standard error.
#[track_caller]
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message}");
    }
    message
}
