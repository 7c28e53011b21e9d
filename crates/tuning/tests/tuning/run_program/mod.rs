// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul run` with a shell script as its program.

use longhaul_testprograms::wait::wait_until;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};
use std::{
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
};

/// Returns the command `longhaul run FLAGS -- WORDS`.
pub(crate) fn command(flags: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.arg("run").args(flags).arg("--").args(words);
    command
}

/// Runs the command to its end.
pub(crate) fn output(flags: &[&str], words: &[&str]) -> Output {
    command(flags, words).output().unwrap()
}

/// Runs the command, which must succeed; returns its standard output.
pub(crate) fn stdout_of(flags: &[&str], words: &[&str]) -> String {
    let output = output(flags, words);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {message}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Program that runs its script, prints its process number, and then waits until its input ends. It is killed on
/// drop.
pub(crate) struct RunningProgram {
    pub(crate) longhaul: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) program: Pid,
}

impl RunningProgram {
    /// Starts a program with a bash script.
    pub(crate) fn start(flags: &[&str], script: &str) -> Self {
        // A signal just before bash waits for a line is handled when the wait times out after a second.
        let wait = "until read -t 1; do [ $? -gt 128 ] || break; done";
        let script = format!("{script}\necho $$; {wait}");
        // bash can't trap signals that are ignored at its start (nohup, a shell's background).
        let bash = ["env", "--default-signal", "bash", "-ec", &script];
        Self::spawn(command(flags, &bash))
    }

    /// Starts a command that prints the process number.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut longhaul = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = longhaul.stdin.take();
        let mut output = BufReader::new(longhaul.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let number = line.trim().parse().ok().and_then(Pid::from_raw);
        Self {
            longhaul,
            input,
            output,
            program: number.unwrap_or_else(|| panic!("no number: {line:?}")),
        }
    }

    /// Reads the next line of output.
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn longhaul(&self) -> Pid {
        Pid::from_child(&self.longhaul)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.longhaul(), signal).unwrap();
    }

    /// Duplicates a socket of the program, by its descriptor's number.
    pub(crate) fn socket(&self, number: i32) -> TcpStream {
        let program = pidfd_open(self.program, PidfdFlags::empty()).unwrap();
        let socket = pidfd_getfd(&program, number, PidfdGetfdFlags::empty());
        socket.unwrap().into()
    }

    /// Waits for longhaul's end, while the program's input stays open.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until(|| {
            status = self.longhaul.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// Closes the input, which ends the program; returns its exit code and the remaining output.
    pub(crate) fn finish(&mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.longhaul.wait().unwrap().code(), rest)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.longhaul.kill());
        drop(self.longhaul.wait());
    }
}

/// Opens a listener on loopback, in the process of the test.
pub(crate) fn listen_on_loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns a bash command that opens a connection as descriptor 3.
pub(crate) fn connect(to: SocketAddr) -> String {
    format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port())
}

/// Whether BPF programs can be attached, as root of the machine. In a user namespace the test is skipped;
/// otherwise it fails, unless ALLOW_SKIP is 1.
pub(crate) fn may_attach_bpf() -> bool {
    let missing = longhaul_congestion::sockets::initial_window::attach().err();
    let missing = missing.map(|error| error.to_string());
    longhaul_testprograms::skip::require_privileged(missing.is_none(), missing.unwrap_or_default())
}
