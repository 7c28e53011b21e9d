// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command in PID and mount namespaces of its own. All processes that it started end with it, and their total resource
//! usage is known.
//!
//! PID 1 of the PID namespace is a process of this program. It starts the command, inherits every orphan, kills the
//! remaining processes when the command has ended, and waits for all of them. So the kernel's resource usage of its
//! children (getrusage(2)) includes each process that was waited for. No cgroup is needed, which an ordinary user may not
//! create. Children of a process that ignores SIGCHLD are not included.

use super::sandbox::{
    SandboxError, block_awaited_signals, restore_signals, wait_and_forward_signals,
};
use libc::{RUSAGE_CHILDREN, pid_t, sigset_t};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Signal, set_parent_process_death_signal},
    thread::{UnshareFlags, unshare_unsafe},
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

/// Bytes of each output that are passed on; the rest is read and discarded.
const OUTPUT_MAX: usize = 1 << 20;
/// Bytes at the end of an output in which its last line is searched.
const TAIL_MAX: usize = 4096;
/// Exit code of shells for a program that can't be started.
const NOT_STARTED: u8 = 127;

/// Outcome of a command, and the resources that it and its descendants used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Its exit code, or 128 + the number of the signal that ended it.
    pub code: u8,
    /// Duration, in seconds.
    pub seconds: f64,
    /// User and system time of all processes, in seconds.
    pub cpu_s: f64,
    /// Largest resident set of one of the processes, in bytes.
    pub peak_memory_bytes: u64,
    /// The last line of its standard error that is not blank.
    pub last_line: String,
}

/// Runs `command` to its end, passes its outcome to `report` and returns its exit code. Its outputs go to this program's,
/// 1 MiB of each at most, and its standard input is empty. SIGINT, SIGTERM and SIGHUP are forwarded to it.
///
/// The caller must have one thread. When the caller dies, for whatever reason, all processes end.
pub fn run(
    command: &mut Command,
    report: impl FnOnce(&ExitReport) -> io::Result<()>,
) -> Result<u8, SandboxError> {
    let before = block_awaited_signals()?;
    // SAFETY: descriptors and memory stay shared with nobody; the caller has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID | UnshareFlags::NEWNS) }.map_err(|error| {
        SandboxError::Namespaces {
            namespaces: "PID and mount",
            source: error.into(),
        }
    })?;
    // SAFETY: the caller has one thread, so the child's copy of every lock is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => run_as_init(command, before, report),
        first => Ok(wait_and_forward_signals(first)?),
    }
}

/// Runs as PID 1 of the namespace; never returns.
fn run_as_init(
    command: &mut Command,
    before: sigset_t,
    report: impl FnOnce(&ExitReport) -> io::Result<()>,
) -> ! {
    let code = mount_private_proc()
        .and_then(|()| run_command(command, before))
        .and_then(|outcome| report(&outcome).map(|()| outcome.code));
    let code = code.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "cannot supervise the command: {error}");
        NOT_STARTED
    });
    std::process::exit(code.into())
}

fn mount_private_proc() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )?;
    // Otherwise /proc shows another PID namespace.
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", plain, None)?)
}

fn run_command(command: &mut Command, before: sigset_t) -> io::Result<ExitReport> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            restore_signals(&before);
            Ok(())
        })
    };
    let began = Instant::now();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_started(&error)),
    };
    let [out, err] = copy_outputs(&mut child);
    let code = wait_and_forward_signals(child.id() as pid_t)?;
    let seconds = began.elapsed().as_secs_f64();
    kill_all();
    let last_line = err.join().unwrap_or_default();
    let _ = out.join();
    let (cpu_s, peak_memory_bytes) = children_usage()?;
    Ok(ExitReport {
        code,
        seconds,
        cpu_s,
        peak_memory_bytes,
        last_line,
    })
}

fn not_started(error: &io::Error) -> ExitReport {
    ExitReport {
        code: NOT_STARTED,
        seconds: 0.0,
        cpu_s: 0.0,
        peak_memory_bytes: 0,
        last_line: format!("cannot be started: {error}"),
    }
}

/// Copies both outputs to their ends, which come when no process has them open any more. Each thread returns the last
/// line.
fn copy_outputs(child: &mut Child) -> [thread::JoinHandle<String>; 2] {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    [
        thread::spawn(move || out.map_or_else(String::new, |out| copy_output(out, io::stdout()))),
        thread::spawn(move || err.map_or_else(String::new, |err| copy_output(err, io::stderr()))),
    ]
}

fn copy_output(mut from: impl Read, mut to: impl Write) -> String {
    let (mut chunk, mut left, mut tail) = (vec![0; 1 << 16], OUTPUT_MAX, Vec::new());
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let kept = count.min(left);
        left -= kept;
        // The destination may be full: the command continues.
        let _ = to.write_all(&chunk[..kept]).and_then(|()| to.flush());
        tail.extend_from_slice(&chunk[..count]);
        tail.drain(..tail.len().saturating_sub(TAIL_MAX));
    }
    last_line(&tail)
}

fn last_line(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or_default().trim().to_owned()
}

/// Kills all other processes of the PID namespace, of which this is PID 1, and waits for them.
fn kill_all() {
    // SAFETY: kill takes plain numbers; -1 is every process of this PID namespace but PID 1.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
}

/// Returns the seconds of CPU of all children that were waited for, and the largest resident set among them, in bytes.
fn children_usage() -> io::Result<(f64, u64)> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for the structure.
    if unsafe { libc::getrusage(RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, then filled in; integers only.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    // In KiB (getrusage(2)).
    Ok((cpu_s, usage.ru_maxrss as u64 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_skips_blank_lines() {
        assert_eq!(last_line(b"one\ntwo \n\n  \n"), "two");
        assert_eq!(last_line(b""), "");
    }

    #[test]
    fn copies_outputs_up_to_a_limit_and_reads_to_the_end() {
        let text = [vec![b'x'; 3 * OUTPUT_MAX], b"\nthe end\n".to_vec()].concat();
        let mut kept = Vec::new();
        assert_eq!(copy_output(text.as_slice(), &mut kept), "the end");
        assert_eq!(kept.len(), OUTPUT_MAX);
    }
}
