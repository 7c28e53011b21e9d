// SPDX-License-Identifier: MIT OR Apache-2.0
//! An executor, as of a will: a process of its own that sees to what is left to be done when this one
//! dies or hangs.
//!
//! It waits at a pipe. As long as it hears something often enough, nothing is done; when the pipe
//! closes (the kernel closes it, however this process ends) or stays silent, the work is done. It is
//! in a session of its own and takes no notice of the signals that end a terminal's programs; a
//! SIGKILL for both at once leaves the work undone.

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

/// The end of the pipe at which this process gives its signs of life. Dropping it without
/// [`Self::dismiss`] has the work done.
#[derive(Debug)]
pub struct CleanupProcess {
    pipe: Option<PipeWriter>,
    process: Pid,
}

/// Why the work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The process gives no sign of life, and may go on.
    HeartbeatTimeout,
    /// It is no more; this is the executor's last work.
    ParentExited,
}

const HEARTBEAT: u8 = b'.';
const DISARM: u8 = b'q';

impl CleanupProcess {
    /// Starts it. `work` is done, in the other process, when this one has gone or has given no sign of
    /// life for `patience`; after a silence it then waits on, for the next one.
    ///
    /// The caller must have one thread: only the calling thread exists in the other process.
    pub fn spawn(patience: Duration, work: impl FnMut(Trigger)) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: the caller has one thread, so nothing in the child can be waiting for a lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(writer);
                watch_parent(reader, patience, work);
                // SAFETY: ends this process at once, without the destructors of its parent's things.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Self {
                pipe: Some(writer),
                process: Pid::from_raw(child).expect("fork returns a process"),
            }),
        }
    }

    /// Gives a sign of life. Fails if the executor is gone.
    pub fn heartbeat(&mut self) -> io::Result<()> {
        self.pipe
            .as_mut()
            .map_or(Ok(()), |pipe| pipe.write_all(&[HEARTBEAT]))
    }

    /// Lets it go without work to do.
    pub fn disarm(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // One that is gone needs no word.
            let _ = pipe.write_all(&[DISARM]);
        }
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

fn watch_parent(mut pipe: PipeReader, patience: Duration, mut work: impl FnMut(Trigger)) {
    detach();
    let mut words = [0; 256];
    let mut is_silent = false;
    loop {
        if !is_silent && !wait_for_heartbeat(&pipe, patience) {
            is_silent = true;
            work(Trigger::HeartbeatTimeout);
        }
        match pipe.read(&mut words) {
            Ok(0) => return work(Trigger::ParentExited),
            Ok(count) if words[..count].contains(&DISARM) => return,
            Ok(_) => is_silent = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return work(Trigger::ParentExited),
        }
    }
}

fn wait_for_heartbeat(pipe: &PipeReader, patience: Duration) -> bool {
    let limit = Timespec::try_from(patience).ok();
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    // An interruption is as good as a word: the read that follows waits.
    poll(&mut polled, limit.as_ref()).map_or(true, |ready| ready > 0)
}

/// Out of the way of whoever waits for this process's output or ends its terminal.
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
