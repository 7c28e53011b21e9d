// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supervision of a child program that runs in place of this process, as with `sudo`. The program has this process's
//! terminal, process group, signal mask and environment. It receives this process's signals. Its exit code becomes this
//! process's.
//!
//! A terminal sends its signals (Ctrl-C, Ctrl-\, hang-up) to the whole process group, so the program receives them
//! without help. Only a signal that another process sends to this process is forwarded. Ctrl-Z stops both.

use super::account::Account;
use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus},
    ptr,
};

/// Signals that are forwarded. Other signals cannot be caught, or concern only this process, or reach the program
/// without help (SIGWINCH, SIGTSTP).
const FORWARDED_SIGNALS: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Interval at which the program is checked without SIGCHLD. The kernel may deliver SIGCHLD to a thread that was
/// started before signals were blocked, where it is lost (`complete_signal`, kernel/signal.c).
static POLL_INTERVAL: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Signals that are blocked in this thread, and in threads that it starts later. [`Program::wait`] receives them. They
/// stay blocked: a signal at the program's end must not replace the program's exit code.
#[derive(Debug)]
pub struct BlockedSignals {
    blocked: libc::sigset_t,
    previous: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks the signals. Restores the default action of SIGCHLD, which may have been ignored.
    pub fn block() -> io::Result<Self> {
        let mut blocked = empty_set();
        // SAFETY: the signal is valid, and SIG_DFL installs no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        for signal in FORWARDED_SIGNALS.into_iter().chain([libc::SIGCHLD]) {
            // SAFETY: the set is a local variable, and the signal is valid.
            unsafe { libc::sigaddset(&raw mut blocked, signal) };
        }
        let mut previous = empty_set();
        // SAFETY: both sets are local variables.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut previous)
        } {
            0 => Ok(Self { blocked, previous }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Returns the next signal, if one arrives within [`POLL_INTERVAL`].
    fn wait(&self) -> io::Result<Option<Signal>> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set, the signal's data and the time are valid during the call.
        let number = unsafe {
            libc::sigtimedwait(
                &raw const self.blocked,
                info.as_mut_ptr(),
                &raw const POLL_INTERVAL,
            )
        };
        if number >= 0 {
            // SAFETY: the structure was zeroed, and has integers only.
            let code = unsafe { info.assume_init() }.si_code;
            return Ok(Some(Signal {
                number,
                sent_by_process: code <= 0,
            }));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            // The call timed out, or was interrupted because the process was stopped and continued.
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }
}

struct Signal {
    number: i32,
    /// Whether a process sent it; a terminal's signals come from the kernel (sigaction(2), `si_code`).
    sent_by_process: bool,
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set in.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// A running program.
#[derive(Debug)]
pub struct Program<'a> {
    child: Child,
    signals: &'a BlockedSignals,
}

impl<'a> Program<'a> {
    /// Starts the program in the cgroup whose `cgroup.procs` file is `procs`, as `account` if given. The
    /// program has this process's signal mask as it was before `signals` were blocked.
    pub fn start(
        command: &mut Command,
        procs: OwnedFd,
        account: Option<&Account>,
        signals: &'a BlockedSignals,
    ) -> io::Result<Self> {
        let account = account.cloned();
        let mask = signals.previous;
        // SAFETY: between fork and exec, the closure only makes system calls on values that it owns. It allocates
        // nothing.
        let command = unsafe {
            command.pre_exec(move || {
                join_cgroup(&procs)?;
                account.as_ref().map_or(Ok(()), Account::switch_to)?;
                match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut()) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            })
        };
        let child = command.spawn()?;
        Ok(Self { child, signals })
    }

    /// Returns the program's process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program ends, and forwards signals to it meanwhile.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            let Some(signal) = self.signals.wait()? else {
                continue;
            };
            if signal.sent_by_process && signal.number != libc::SIGCHLD {
                // SAFETY: kill(2) takes plain numbers; the child is not reaped, so the ID is still its own.
                unsafe { libc::kill(self.child.id() as libc::pid_t, signal.number) };
            }
        }
    }
}

/// Moves this process to the cgroup of the `cgroup.procs` file `procs`.
fn join_cgroup(procs: &OwnedFd) -> io::Result<()> {
    // SAFETY: the constant has at least one byte.
    match unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the exit code as shells report it, or 128 + the signal that ended the process.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.unwrap_or(1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(libc::SIGTERM)), 143);
    }
}
