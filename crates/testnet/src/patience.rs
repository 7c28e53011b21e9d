// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long tests wait for anything.

use rustix::event::{PollFd, PollFlags, poll};
use std::{net::TcpStream, os::fd::AsFd, time::Duration};

/// No test waits longer for anything; it decides only how long a failure takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Bounds the time that reads and writes wait.
pub fn patient(stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// Waits until this is readable: a listener somebody connects to, a process that has ended.
pub(crate) fn await_readable(descriptor: &impl AsFd, what: &str) {
    let timeout = PATIENCE.try_into().unwrap();
    let mut descriptors = [PollFd::new(descriptor, PollFlags::IN)];
    let readable = poll(&mut descriptors, Some(&timeout)).unwrap();
    assert!(readable > 0, "waited {PATIENCE:?} for {what}");
}
