// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which other threads wake the one that waits for packets.

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

/// eventfd(2), with a system call only for the first of several who call.
#[derive(Debug)]
pub(super) struct Wakeup {
    event: OwnedFd,
    called: AtomicBool,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            event: eventfd(0, flags)?,
            called: AtomicBool::new(false),
        })
    }

    /// Whoever waits looks again.
    pub(super) fn call(&self) {
        if !self.called.swap(true, SeqCst) {
            // Full it would have been called, too.
            let _called_already = write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whoever waits was woken: calls from now on are new ones. In this order, for who calls in between finds that it was
    /// called, and what he wants done is seen after this.
    pub(super) fn answer(&self) {
        let _one_at_least = read(&self.event, &mut [0; 8]);
        self.called.store(false, SeqCst);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
