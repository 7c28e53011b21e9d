// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sandbox for work that leaves nothing behind: a process in namespaces of its own, which the kernel
//! removes.
//!
//! [`run`] starts two processes. The *guard* is PID 1 of a new PID namespace, in new mount and
//! network namespaces (and a user namespace if the caller is not root). It asks the kernel to kill it
//! when its parent dies. The *worker* is its child and does the work. When the guard ends, for whatever
//! reason, the kernel kills every process of the PID namespace. With the last one it removes the mounts,
//! the named network namespaces, their interfaces, routes and rules. So `kill -9` of the caller cleans
//! up as a normal end does, and no record of what to undo is needed.

use crate::network::{interface, netns::Netns};
use libc::{
    CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, SIGCHLD, c_int, pid_t, sigset_t,
};
use longhaul_units::Bytes;
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Signal, set_parent_process_death_signal},
};
use std::{
    ffi::CString,
    fs, io,
    io::{Read, Write},
    mem::MaybeUninit,
    path::Path,
};

/// Reason why the sandbox could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The namespaces were refused.
    #[error("cannot create {namespaces} namespaces: {source}")]
    Namespaces {
        /// Kinds of the namespaces.
        namespaces: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The user could not be mapped to root of the new user namespace.
    #[error("cannot map this user to root of a new user namespace: {0}")]
    UserMap(#[source] io::Error),
    /// The namespaces exist but could not be set up.
    #[error("cannot {step} inside the new namespaces: {source}")]
    SetUp {
        /// Step that failed.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A process could not be started or waited for.
    #[error("cannot start the sandbox: {0}")]
    Process(#[from] io::Error),
}

/// Runs `work` in a sandbox and returns its exit code, or 128 + the number of the signal that ended it,
/// as shells do. `work` receives the error if the sandbox could not be set up.
///
/// Inside, `/run` is an empty tmpfs (so `/run/netns` is private), `/proc` shows the sandbox alone
/// and `lo` is up. SIGINT, SIGTERM and SIGHUP are forwarded to the worker.
///
/// The caller must have one thread: only the calling thread exists in the children.
pub fn run(work: impl FnOnce(Result<(), SandboxError>) -> u8) -> Result<u8, SandboxError> {
    let root = rustix::process::geteuid().is_root();
    let (start_reader, start_writer) = io::pipe()?;
    let before = block_awaited_signals()?;
    let guard = fork_into(namespaces(root)).map_err(|source| SandboxError::Namespaces {
        namespaces: if root {
            "PID, mount and network"
        } else {
            "user, PID, mount and network"
        },
        source,
    })?;
    if guard == 0 {
        drop(start_writer);
        run_guard(start_reader, &before, work);
    }
    drop(start_reader);
    let started = start_guard(start_writer, guard, root);
    let code = wait_and_forward_signals(guard);
    restore_signals(&before);
    started.and(Ok(code?))
}

fn namespaces(root: bool) -> c_int {
    let all = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET;
    if root { all } else { all | CLONE_NEWUSER }
}

/// Maps the guard's user if needed, and writes the byte to the pipe that lets the guard continue. If the pipe ends without
/// that byte, the guard exits.
fn start_guard(
    mut start_writer: io::PipeWriter,
    guard: pid_t,
    root: bool,
) -> Result<(), SandboxError> {
    if !root {
        map_to_root(guard).map_err(SandboxError::UserMap)?;
    }
    Ok(start_writer.write_all(&[1])?)
}

/// Maps this user to root of the guard's user namespace. An ordinary user may map only itself, with
/// setgroups denied (`user_namespaces(7)`).
fn map_to_root(guard: pid_t) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    fs::write(format!("/proc/{guard}/setgroups"), "deny")?;
    fs::write(
        format!("/proc/{guard}/uid_map"),
        format!("0 {} 1", user.as_raw()),
    )?;
    fs::write(
        format!("/proc/{guard}/gid_map"),
        format!("0 {} 1", group.as_raw()),
    )
}

/// Runs as the guard; never returns.
fn run_guard(
    mut start_reader: io::PipeReader,
    before: &sigset_t,
    work: impl FnOnce(Result<(), SandboxError>) -> u8,
) -> ! {
    // First the death signal, then the wait: if the parent dies in between, the pipe ends.
    let armed = set_parent_process_death_signal(Some(Signal::KILL));
    let started = start_reader.read_exact(&mut [0]);
    if armed.is_err() || started.is_err() {
        std::process::exit(1);
    }
    match fork_into(0) {
        Ok(0) => {
            restore_signals(before);
            std::process::exit(work(set_up()).into())
        }
        Ok(worker) => std::process::exit(wait_and_forward_signals(worker).unwrap_or(1).into()),
        Err(_) => std::process::exit(1),
    }
}

/// Makes the mounts private, mounts a `/proc` that shows this PID namespace and an empty `/run` and
/// `/dev/shm`, and brings `lo` up.
fn set_up() -> Result<(), SandboxError> {
    let step = |step| move |source: io::Error| SandboxError::SetUp { step, source };
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private)
        .map_err(io::Error::from)
        .map_err(step("make the mounts private"))?;
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", plain, None)
        .map_err(io::Error::from)
        .map_err(step("mount /proc"))?;
    let empty = |path: &str, mode| {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", path, "tmpfs", flags, Some(mode)).map_err(io::Error::from)
    };
    empty("/run", c"mode=0755").map_err(step("mount a private /run"))?;
    if Path::new("/dev/shm").is_dir() {
        // Killed programs leave their POSIX shared memory there (Squid does).
        empty("/dev/shm", c"mode=1777").map_err(step("mount a private /dev/shm"))?;
    }
    let here = Netns::current().map_err(step("open the network namespace"))?;
    interface::bring_up(&here, "lo").map_err(step("bring lo up"))
}

/// Mounts a tmpfs of at most `size` on the directory `path`.
pub fn mount_tmpfs(path: &Path, size: Bytes) -> io::Result<()> {
    let options = CString::new(format!("mode=0755,size={}", size.get()))?;
    Ok(mount(
        "tmpfs",
        path,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(&*options),
    )?)
}

/// Waits for `child`, forwards the signals that ask a process to end, and reaps all other children that
/// end meanwhile (PID 1 inherits every orphan). Returns the child's exit code.
pub(super) fn wait_and_forward_signals(child: pid_t) -> io::Result<u8> {
    let signals = awaited_signals();
    loop {
        if let Some(code) = reap_until(child)? {
            return Ok(code);
        }
        match wait_for_signal(&signals)? {
            SIGCHLD => {}
            // SAFETY: kill takes plain numbers; the child is not reaped yet, so no other process has its id.
            other => unsafe {
                libc::kill(child, other);
            },
        }
    }
}

/// Reaps every process that has ended. Returns `child`'s exit code if it is among them.
fn reap_until(child: pid_t) -> io::Result<Option<u8>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer that waitpid writes.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error()),
            pid if pid == child => return Ok(Some(exit_code(status))),
            _ => {}
        }
    }
}

pub(super) fn exit_code(status: c_int) -> u8 {
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status) as u8
    } else {
        128 + libc::WTERMSIG(status) as u8
    }
}

/// Forks; the child is the first process of the new `namespaces` (clone flags). Returns 0 in the child.
fn fork_into(namespaces: c_int) -> io::Result<pid_t> {
    if namespaces == 0 {
        // SAFETY: the caller has one thread, so the child's copy of every lock is consistent.
        let pid = unsafe { libc::fork() };
        return if pid < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(pid)
        };
    }
    let flags = libc::c_long::from(namespaces | SIGCHLD);
    // SAFETY: without CLONE_VM and with no new stack, clone is fork: the child continues with a copy
    // of this stack. libc's fork handlers are skipped, so the guard does no more than read a pipe,
    // fork the worker through libc (which resets libc's own state) and wait.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(pid as pid_t)
    }
}

fn awaited_signals() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset then changes; the numbers are valid.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals that [`wait_and_forward_signals`] waits for (PID 1 would not receive an unblocked SIGTERM), and
/// returns the previous mask.
pub(super) fn block_awaited_signals() -> io::Result<sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are live; the call writes `before` if it succeeds.
    match unsafe { libc::sigprocmask(libc::SIG_BLOCK, &awaited_signals(), before.as_mut_ptr()) } {
        // SAFETY: initialised by the successful call.
        0 => Ok(unsafe { before.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn restore_signals(mask: &sigset_t) {
    // SAFETY: `mask` is a set that the kernel gave.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

fn wait_for_signal(signals: &sigset_t) -> io::Result<c_int> {
    let mut signal = 0;
    // SAFETY: both pointers are to live values.
    match unsafe { libc::sigwait(signals, &raw mut signal) } {
        0 => Ok(signal),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
