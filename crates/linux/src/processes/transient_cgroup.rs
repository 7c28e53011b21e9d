// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cgroup (version 2) that lasts as long as its owner's work. It is a child of this process's cgroup,
//! so that the limits of this process apply to it.
//!
//! Its name contains its owner's process ID, and its owner keeps it locked (flock(2)). A cgroup without
//! a lock was left by a killed owner, and [`remove_stale`] removes it once no process runs in it.

use super::cgroup;
use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat},
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread::sleep,
    time::Duration,
};

/// Names that are tried before creation fails.
const NAME_ATTEMPTS: u32 = 64;
/// Attempts to move all processes out of the cgroup: they may fork meanwhile.
const REMOVE_ATTEMPTS: u32 = 100;
/// Time between attempts: a process that has ended leaves its cgroup a little later.
const PAUSE: Duration = Duration::from_millis(5);

/// The file that lists the processes, and to which the IDs of new ones are written.
const PROCESSES: &str = "cgroup.procs";

/// A cgroup that is removed with this value. Processes that still run in it move back to the parent.
#[derive(Debug)]
pub struct TransientCgroup {
    parent: OwnedFd,
    name: String,
    /// Locked.
    directory: OwnedFd,
}

impl TransientCgroup {
    /// Creates one called `PREFIX.PID.N`. Needs the right to create directories in this process's cgroup:
    /// root's, or a delegated subtree.
    pub fn create(prefix: &str) -> io::Result<Self> {
        let parent = cgroup::own()?;
        let pid = std::process::id();
        let names = (0..NAME_ATTEMPTS).map(|n| format!("{prefix}.{pid}.{n}"));
        for name in names {
            match mkdirat(&parent, &name, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => {}
                outcome => {
                    outcome?;
                    let directory = locked(&parent, &name)?;
                    return Ok(Self {
                        parent,
                        name,
                        directory,
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns its name below the parent.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens `cgroup.procs`: a process that writes "0" to it moves into the cgroup.
    pub fn open_procs(&self) -> io::Result<OwnedFd> {
        open(&self.directory, PROCESSES, OFlags::WRONLY)
    }

    /// Returns a handle that lists its processes.
    pub fn processes(&self) -> io::Result<Processes> {
        Ok(Processes(self.directory.try_clone()?))
    }

    /// Moves all its processes to the parent, and removes it.
    fn remove(&self) -> io::Result<()> {
        let mut parent = File::from(open(&self.parent, PROCESSES, OFlags::WRONLY)?);
        for _ in 0..REMOVE_ATTEMPTS {
            for process in processes_in(&self.directory)? {
                // The process may have ended meanwhile.
                let _ = writeln!(parent, "{process}");
            }
            match unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => sleep(PAUSE),
                outcome => return Ok(outcome?),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

impl AsFd for TransientCgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Drop for TransientCgroup {
    fn drop(&mut self) {
        // `remove_stale` removes it later if that fails now.
        let _ = self.remove();
    }
}

/// Processes of a cgroup; the handle outlives its [`TransientCgroup`].
#[derive(Debug)]
pub struct Processes(OwnedFd);

impl Processes {
    /// Lists the current processes.
    pub fn list(&self) -> io::Result<Vec<Pid>> {
        processes_in(&self.0)
    }
}

fn open(directory: impl AsFd, name: &str, how: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(
        directory,
        name,
        how | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn locked(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let directory = open(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn processes_in(directory: &OwnedFd) -> io::Result<Vec<Pid>> {
    let mut list = String::new();
    File::from(open(directory, PROCESSES, OFlags::RDONLY)?).read_to_string(&mut list)?;
    let numbers = list.lines().filter_map(|line| line.parse().ok());
    Ok(numbers.filter_map(Pid::from_raw).collect())
}

/// Outcome for a cgroup whose owner has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaleCgroup {
    /// The cgroup was removed.
    Removed(String),
    /// This number of processes still run in it.
    Busy(String, usize),
}

/// Removes the cgroups below this process's own whose owner has ended and in which no process runs.
pub fn remove_stale(prefix: &str) -> io::Result<Vec<StaleCgroup>> {
    let parent = cgroup::own()?;
    let mut stale = Vec::new();
    for entry in Dir::read_from(&parent)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if owner(prefix, &name).is_some_and(|pid| !is_alive(pid)) {
            stale.extend(remove_if_empty(&parent, name)?);
        }
    }
    Ok(stale)
}

fn remove_if_empty(parent: &OwnedFd, name: String) -> io::Result<Option<StaleCgroup>> {
    // Its owner may run in another PID namespace: then it is locked.
    let Ok(directory) = locked(parent, &name) else {
        return Ok(None);
    };
    match processes_in(&directory)?.len() {
        0 => match unlinkat(parent, &name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(Some(StaleCgroup::Removed(name))),
            // It has child cgroups, or a process that has just moved in.
            Err(Errno::BUSY) => Ok(Some(StaleCgroup::Busy(name, 0))),
            Err(error) => Err(error.into()),
        },
        count => Ok(Some(StaleCgroup::Busy(name, count))),
    }
}

/// Parses the owner's process ID from a cgroup's name.
fn owner(prefix: &str, name: &str) -> Option<Pid> {
    let rest = name.strip_prefix(prefix)?.strip_prefix('.')?;
    let (pid, number) = rest.split_once('.')?;
    number.parse::<u32>().ok()?;
    Pid::from_raw(pid.parse().ok()?)
}

fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_the_owner_s_process_id() {
        let pid = |name: &str| owner("longhaul-run", name).map(Pid::as_raw_pid);
        assert_eq!(pid("longhaul-run.12.0"), Some(12));
        for other in [
            "longhaul-run.12",
            "longhaul-run.x.0",
            "longhaul-run12.0",
            "init.scope",
        ] {
            assert_eq!(pid(other), None, "{other}");
        }
    }

    #[test]
    fn detects_running_and_missing_processes() {
        assert!(is_alive(rustix::process::getpid()));
        assert!(!is_alive(Pid::from_raw(i32::MAX).unwrap()));
    }
}
