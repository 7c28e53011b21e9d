// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cgroup (version 2) that lasts as long as somebody's work: below this process's own, so that
//! whatever limits this process limits what runs in it.
//!
//! Its name says whose it is, and its owner keeps it locked (flock(2)). One that a killed owner left
//! is known by that, and [`sweep`] takes it away once nothing runs in it.

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

/// Names tried before giving up.
const NAME_ATTEMPTS: u32 = 64;
/// Times that processes are looked for when the cgroup goes: they may beget others meanwhile.
const REMOVE_ATTEMPTS: u32 = 100;
/// A process that has ended leaves its cgroup a little later.
const PAUSE: Duration = Duration::from_millis(5);

/// The file that lists processes, and takes in those whose numbers are written to it.
const PROCESSES: &str = "cgroup.procs";

/// A cgroup that goes with this value. Processes that still run in it go back to the parent.
#[derive(Debug)]
pub struct TransientCgroup {
    parent: OwnedFd,
    name: String,
    /// Locked.
    directory: OwnedFd,
}

impl TransientCgroup {
    /// Makes one called `PREFIX.PID.N`. Needs the right to make directories in this process's cgroup:
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

    /// Its name below the parent.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whoever writes "0" there goes into it.
    pub fn open_procs(&self) -> io::Result<OwnedFd> {
        open(&self.directory, PROCESSES, OFlags::WRONLY)
    }

    /// The list of those in it.
    pub fn processes(&self) -> io::Result<Processes> {
        Ok(Processes(self.directory.try_clone()?))
    }

    /// Back to the parent with all of them, and away with it.
    fn remove(&self) -> io::Result<()> {
        let mut parent = File::from(open(&self.parent, PROCESSES, OFlags::WRONLY)?);
        for _ in 0..REMOVE_ATTEMPTS {
            for process in processes_in(&self.directory)? {
                // It may have ended meanwhile.
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
        // What can't be removed now is a later sweep's.
        let _ = self.remove();
    }
}

/// Those in a cgroup; the list outlives its [`TransientCgroup`].
#[derive(Debug)]
pub struct Processes(OwnedFd);

impl Processes {
    /// As they are now.
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

/// What became of a cgroup that nobody owns any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaleCgroup {
    /// It is gone.
    Removed(String),
    /// So many processes still run in it.
    Busy(String, usize),
}

/// Removes those beside which this process would make its own, whose owner has ended and in which
/// nothing runs.
pub fn remove_stale(prefix: &str) -> io::Result<Vec<StaleCgroup>> {
    let parent = cgroup::own()?;
    let mut swept = Vec::new();
    for entry in Dir::read_from(&parent)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if owner(prefix, &name).is_some_and(|pid| !is_alive(pid)) {
            swept.extend(remove_if_empty(&parent, name)?);
        }
    }
    Ok(swept)
}

fn remove_if_empty(parent: &OwnedFd, name: String) -> io::Result<Option<StaleCgroup>> {
    // Its owner may live in another PID namespace: then it is locked.
    let Ok(directory) = locked(parent, &name) else {
        return Ok(None);
    };
    match processes_in(&directory)?.len() {
        0 => match unlinkat(parent, &name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(Some(StaleCgroup::Removed(name))),
            // It has cgroups below it, or a process that just came.
            Err(Errno::BUSY) => Ok(Some(StaleCgroup::Busy(name, 0))),
            Err(error) => Err(error.into()),
        },
        count => Ok(Some(StaleCgroup::Busy(name, count))),
    }
}

/// The process that a name of ours speaks of.
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
    fn names_say_whose_they_are() {
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
    fn this_process_lives_and_none_has_the_largest_number() {
        assert!(is_alive(rustix::process::getpid()));
        assert!(!is_alive(Pid::from_raw(i32::MAX).unwrap()));
    }
}
