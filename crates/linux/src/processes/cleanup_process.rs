// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second process that does cleanup work when this process dies or hangs.
//!
//! The cleanup process reads heartbeats from a pipe. It does the work when the pipe closes, or when no heartbeat
//! arrives in time. The kernel closes the pipe however this process ends. The cleanup process has its own session, and
//! ignores the signals that end a terminal's programs. If both processes receive SIGKILL at once, the work is not done.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, WaitOptions, setsid, waitpid},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read, Write},
    time::Duration,
};

/// Handle of a cleanup process, to which this process sends heartbeats. Dropping the handle without [`Self::disarm`]
/// triggers the work.
#[derive(Debug)]
pub struct CleanupProcess {
    pipe: Option<PipeWriter>,
    process: Pid,
}

/// Reason why the work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The parent sent no heartbeat in time. It may still run and continue later.
    HeartbeatTimeout,
    /// The parent has exited. The work is done for the last time.
    ParentExited,
}

const HEARTBEAT: u8 = b'.';
const DISARM: u8 = b'q';

impl CleanupProcess {
    /// Starts the cleanup process. It does `work` when this process has exited, or has sent no heartbeat for `timeout`.
    /// After a timeout it waits for the next heartbeat.
    ///
    /// This process must have only one thread: fork(2) copies only the calling thread.
    pub fn spawn(timeout: Duration, work: impl FnMut(Trigger)) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: the caller has one thread, so nothing in the child can be waiting for a lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(writer);
                watch_parent(reader, timeout, work);
                // SAFETY: _exit ends this process at once, and runs no destructors of the parent's values.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Self {
                pipe: Some(writer),
                process: Pid::from_raw(child).expect("fork returns a process"),
            }),
        }
    }

    /// Sends a heartbeat. Fails if the cleanup process has exited.
    pub fn heartbeat(&mut self) -> io::Result<()> {
        self.pipe
            .as_mut()
            .map_or(Ok(()), |pipe| pipe.write_all(&[HEARTBEAT]))
    }

    /// Ends the cleanup process without doing the work.
    pub fn disarm(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // The process may have exited already.
            let _ = pipe.write_all(&[DISARM]);
        }
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// Runs in the cleanup process until the parent has exited or disarmed it.
fn watch_parent(mut pipe: PipeReader, timeout: Duration, mut work: impl FnMut(Trigger)) {
    detach();
    let mut bytes = [0; 256];
    let mut timed_out = false;
    loop {
        if !timed_out && !wait_for_heartbeat(&pipe, timeout) {
            timed_out = true;
            work(Trigger::HeartbeatTimeout);
        }
        match pipe.read(&mut bytes) {
            Ok(0) => return work(Trigger::ParentExited),
            Ok(count) if bytes[..count].contains(&DISARM) => return,
            Ok(_) => timed_out = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return work(Trigger::ParentExited),
        }
    }
}

/// Returns whether the pipe became readable within `timeout`.
fn wait_for_heartbeat(pipe: &PipeReader, timeout: Duration) -> bool {
    let limit = Timespec::try_from(timeout).ok();
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    // An interruption counts as a heartbeat: the read after it blocks until there is one.
    poll(&mut polled, limit.as_ref()).map_or(true, |ready| ready > 0)
}

/// Detaches this process from its terminal. Redirects its standard streams to /dev/null, so that no reader waits for
/// them.
fn detach() {
    let _ = setsid();
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
    ] {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
