// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process's user and limits (getrlimit(2)), and the start of commands in a network namespace.

use crate::network::netns::Netns;
use std::{os::unix::process::CommandExt, process::Command};

/// Makes `command` start inside `netns`.
pub fn inside<'a>(command: &'a mut Command, netns: &Netns) -> &'a mut Command {
    let netns = netns.clone();
    // SAFETY: between fork and exec the closure makes one system call, setns, on a descriptor that
    // its own clone keeps open, and allocates nothing.
    unsafe { command.pre_exec(move || netns.enter()) }
}

/// Returns the effective user ID of this process.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process is in a user namespace other than the initial one, whose root has no rights over the machine.
#[must_use]
pub fn is_in_user_namespace() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map");
    users.is_ok_and(|users| !users.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// The limit on open descriptors.
pub mod descriptors {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Raises the soft limit to the hard one if the kernel allows it, and returns the limit in force;
    /// `None` is no limit.
    #[must_use]
    pub fn raise_limit() -> Option<u64> {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: before.maximum,
            maximum: before.maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => raised.current,
            Err(_) => before.current,
        }
    }

    /// Returns the soft limit and the hard one, up to which [`raise_limit`] goes; `None` is no limit.
    #[must_use]
    pub fn limits() -> (Option<u64>, Option<u64>) {
        let limit = getrlimit(Resource::Nofile);
        (limit.current, limit.maximum)
    }
}

/// The limit on the size of files, `RLIMIT_FSIZE`.
pub mod file_size {
    /// Makes a write beyond the limit fail with EFBIG, in this process and its children; by default SIGXFSZ ends the
    /// process (setrlimit(2)).
    pub fn refuse_beyond_limit() {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
}
