// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes inside a network namespace.

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
