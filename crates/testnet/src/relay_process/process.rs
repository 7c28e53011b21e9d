// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process of a `longhaul relay`.

use crate::timeouts::{TEST_TIMEOUT, await_readable};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

/// Running relay, killed on drop.
pub struct Relay {
    child: Child,
    listening: Vec<(String, SocketAddr)>,
    stderr: Option<JoinHandle<String>>,
    lines: Mutex<Receiver<String>>,
}

impl Relay {
    /// Starts `longhaul relay ARGS` and waits until it listens.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.arg("relay").args(args);
        Self::spawn(command)
    }

    /// Starts a relay with a configuration file, which has this number of `listeners`.
    pub fn configured(text: &str, listeners: usize) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.args(["relay", "--config"]).arg(file.path());
        Self::spawn_waiting(command, listeners)
    }

    /// Starts a command that becomes a relay.
    pub fn spawn(command: Command) -> Self {
        let wanted = command.get_args().filter(|arg| is_listener(arg)).count();
        assert!(wanted > 0, "no listener in {command:?}");
        Self::spawn_waiting(command, wanted)
    }

    /// Starts a command that becomes a relay with `wanted` listeners.
    pub fn spawn_waiting(mut command: Command, wanted: usize) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        let (ready, listens) = channel();
        let (lines_sender, received_lines) = channel();
        let read = move || read_all(lines, wanted, &ready, &lines_sender);
        let mut relay = Self {
            child,
            listening: Vec::new(),
            stderr: Some(std::thread::spawn(read)),
            lines: received_lines.into(),
        };
        while relay.listening.len() < wanted {
            let listener = listens
                .recv_timeout(TEST_TIMEOUT)
                .unwrap_or_else(|why| panic!("{command:?} ended early or does not listen: {why}"));
            relay.listening.push(listener);
        }
        relay
    }

    /// Returns the address of its first listener of a kind.
    pub fn address(&self, kind: &str) -> SocketAddr {
        self.listening
            .iter()
            .find(|(k, _)| k == kind)
            .expect(kind)
            .1
    }

    /// Returns the process number.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends a signal to the relay.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Duplicates the socket of its connection with this neighbour, for inspection (pidfd_getfd(2), which
    /// needs root or the same user).
    pub fn socket_to(&self, neighbour: SocketAddr) -> TcpStream {
        let mut found = None;
        let start = std::time::Instant::now();
        while found.is_none() {
            assert!(start.elapsed() < TEST_TIMEOUT, "no leg to {neighbour}");
            let legs = self.sockets().map(TcpStream::from);
            let is_it = |leg: &TcpStream| leg.peer_addr().is_ok_and(|peer| peer == neighbour);
            found = legs.into_iter().find(is_it);
        }
        found.expect("looked for")
    }

    /// Duplicates its sockets of all kinds.
    fn sockets(&self) -> impl Iterator<Item = OwnedFd> {
        let relay = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let numbers = self.descriptors("socket:");
        // A descriptor that was closed meanwhile is left out.
        let copy = move |number| pidfd_getfd(&relay, number, PidfdGetfdFlags::empty()).ok();
        numbers.into_iter().filter_map(copy)
    }

    /// Returns the numbers of its descriptors of one kind: `socket:`, `pipe:`.
    pub fn descriptors(&self, kind: &str) -> Vec<i32> {
        let directory = format!("/proc/{}/fd", self.pid().as_raw_pid());
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let number = |entry: std::fs::DirEntry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let wanted = target.to_str()?.starts_with(kind);
            wanted.then(|| entry.file_name().to_str()?.parse().ok())?
        };
        entries.filter_map(number).collect()
    }

    /// Waits for a line on stderr that contains `word`, and returns the output up to it.
    pub fn wait_for_output(&self, word: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let mut output = String::new();
        while !output.contains(word) {
            output += &lines.recv_timeout(TEST_TIMEOUT).expect(word);
        }
        output
    }

    /// Waits for its exit; returns the status and its stderr without the lines about listeners.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let ended = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        await_readable(&ended, "the relay's end");
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.take().expect("once").join().unwrap();
        (status, stderr)
    }

    /// Sends SIGTERM, then waits as [`Relay::wait`].
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(output) = self.stderr.take().and_then(|it| it.join().ok())
        {
            eprintln!("a relay, ended before the test: {ended:?}, output:\n{output}");
        }
    }
}

fn is_listener(arg: &OsStr) -> bool {
    [
        "--socks5",
        "--http",
        "--forward",
        "--transparent",
        "--convert",
        "--admin",
    ]
    .iter()
    .any(|l| arg == *l)
}

fn parse_ready(line: &str) -> Option<(String, SocketAddr)> {
    let (kind, address) = line.split_once("listening ")?.1.trim().split_once(' ')?;
    Some((kind.to_owned(), address.parse().unwrap()))
}

/// Sends the first `wanted` listeners to `ready`, and all other lines to `lines_sender`; returns those lines.
fn read_all(
    mut lines: BufReader<ChildStderr>,
    mut wanted: usize,
    ready: &Sender<(String, SocketAddr)>,
    lines_sender: &Sender<String>,
) -> String {
    let (mut text, mut line) = (String::new(), String::new());
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        // Sending fails if the receiver is dropped.
        match parse_ready(&line).filter(|_| wanted > 0) {
            Some(listener) => {
                wanted -= 1;
                let _ = ready.send(listener);
            }
            None => {
                text += &line;
                let _ = lines_sender.send(line.clone());
            }
        }
        line.clear();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay that ends early must not be waited for forever.
    #[test]
    fn detects_relay_that_ends_before_it_listens() {
        let start = || Relay::start(&["--socks5", "nowhere"]);
        let output = std::panic::catch_unwind(start).err().expect("no relay");
        let output = output.downcast::<String>().unwrap();
        assert!(output.contains("ended early"), "{output}");
    }
}
