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
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.arg("relay").args(args);
        Self::spawn(command)
    }

    /// Starts a relay with a configuration file of this text, which has this number of `listeners`.
    pub fn start_with_config(text: &str, listeners: usize) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command.args(["relay", "--config"]).arg(file.path());
        Self::spawn_with_listeners(command, listeners)
    }

    /// Starts a command that becomes a relay, and waits until all listeners among its arguments listen.
    pub fn spawn(command: Command) -> Self {
        let listeners = command.get_args().filter(|arg| is_listener(arg)).count();
        assert!(listeners > 0, "no listener in {command:?}");
        Self::spawn_with_listeners(command, listeners)
    }

    /// Starts a command that becomes a relay, and waits until this number of `listeners` listen.
    pub fn spawn_with_listeners(mut command: Command, listeners: usize) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (listener_sender, received_listeners) = channel();
        let (line_sender, received_lines) = channel();
        let read = move || read_stderr(stderr, listeners, &listener_sender, &line_sender);
        let mut relay = Self {
            child,
            listening: Vec::new(),
            stderr: Some(std::thread::spawn(read)),
            lines: received_lines.into(),
        };
        while relay.listening.len() < listeners {
            let listener = received_listeners
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
            .find(|(listener_kind, _)| listener_kind == kind)
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

    /// Duplicates the socket of its connection with this neighbour, for inspection. pidfd_getfd(2) needs root or the
    /// same user.
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

    /// Waits for a line on standard error that contains `text`. Returns the lines up to it, from the last line that a
    /// call returned.
    pub fn wait_for_stderr(&self, text: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let mut stderr = String::new();
        while !stderr.contains(text) {
            stderr += &lines.recv_timeout(TEST_TIMEOUT).expect(text);
        }
        stderr
    }

    /// Waits for its exit. Returns the status, and its standard error without the lines about listeners.
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
            && let Some(stderr) = self.stderr.take().and_then(|reader| reader.join().ok())
        {
            eprintln!("a relay, ended before the test: {ended:?}, stderr:\n{stderr}");
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
        "--health",
    ]
    .iter()
    .any(|flag| arg == *flag)
}

/// Parses a line such as `… listening socks5 127.0.0.1:1080`.
fn parse_listener(line: &str) -> Option<(String, SocketAddr)> {
    let (kind, address) = line.split_once("listening ")?.1.trim().split_once(' ')?;
    Some((kind.to_owned(), address.parse().unwrap()))
}

/// Reads standard error to its end. Sends the first `listeners` listeners to `listener_sender`, and all other lines to
/// `line_sender`. Returns these lines.
fn read_stderr(
    mut stderr: BufReader<ChildStderr>,
    mut listeners: usize,
    listener_sender: &Sender<(String, SocketAddr)>,
    line_sender: &Sender<String>,
) -> String {
    let (mut text, mut line) = (String::new(), String::new());
    while matches!(stderr.read_line(&mut line), Ok(1..)) {
        // Sending fails if the receiver is dropped.
        match parse_listener(&line).filter(|_| listeners > 0) {
            Some(listener) => {
                listeners -= 1;
                let _ = listener_sender.send(listener);
            }
            None => {
                text += &line;
                let _ = line_sender.send(line.clone());
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
        let panic = std::panic::catch_unwind(start).err().expect("no relay");
        let message = panic.downcast::<String>().unwrap();
        assert!(message.contains("ended early"), "{message}");
    }
}
