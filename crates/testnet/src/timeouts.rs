// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timeouts of tests.

use rustix::event::{PollFd, PollFlags, poll};
use std::{net::TcpStream, os::fd::AsFd, time::Duration};

/// Longest wait of a test; it decides only how long a failure takes.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Sets TCP_NODELAY, and timeouts of reads and writes.
pub fn set_timeouts(stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
}

/// Waits until a descriptor is readable: a listener has a connection, or a process has ended.
pub(crate) fn await_readable(descriptor: &impl AsFd, what: &str) {
    let timeout = TEST_TIMEOUT.try_into().unwrap();
    let mut descriptors = [PollFd::new(descriptor, PollFlags::IN)];
    let readable = poll(&mut descriptors, Some(&timeout)).unwrap();
    assert!(readable > 0, "waited {TEST_TIMEOUT:?} for {what}");
}
