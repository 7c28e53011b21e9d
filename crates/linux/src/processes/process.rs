// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process: as whom it runs and what limits it (getrlimit(2)), and the namespace that it starts others in.

use crate::network::netns::Netns;
use std::{os::unix::process::CommandExt, process::Command};

/// Makes `command` start inside `netns`.
pub fn inside<'a>(command: &'a mut Command, netns: &Netns) -> &'a mut Command {
    let netns = netns.clone();
    // SAFETY: between fork and exec the closure makes one system call, setns, on a descriptor that
    // its own clone keeps open, and allocates nothing.
    unsafe { command.pre_exec(move || netns.enter()) }
}

/// The user that this process acts as.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this is a user namespace other than the machine's own, whose root may do nothing that concerns all of the machine.
#[must_use]
pub fn is_in_user_namespace() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map");
    users.is_ok_and(|users| !users.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// The limit on open descriptors.
pub mod descriptors {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Raises the soft limit to the hard one, as far as the kernel lets it, and returns what now
    /// holds; `None` is no limit.
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

    /// The soft limit and the hard one, up to which [`raise_limit`] goes; `None` is no limit.
    #[must_use]
    pub fn limits() -> (Option<u64>, Option<u64>) {
        let limit = getrlimit(Resource::Nofile);
        (limit.current, limit.maximum)
    }
}

/// The limit on the size of files, `RLIMIT_FSIZE`.
pub mod file_size {
    /// From now on a write beyond the limit is refused with EFBIG, in this process and those that it starts; as a
    /// process begins, SIGXFSZ ends it there (setrlimit(2)).
    pub fn refuse_beyond_limit() {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
}
