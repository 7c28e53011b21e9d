// SPDX-License-Identifier: MIT OR Apache-2.0
//! Responder that replies to probe packets, whatever the protocol.

use longhaul_linux::timestamps::Departure;
use longhaul_units::Time;
use std::{io, time::Duration};

/// Reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    /// Number of the request.
    pub(super) number: u32,
    /// Time of its arrival, by the clock of `longhaul_linux::clock::wall`.
    pub(super) at: Time,
    /// Time of the request's arrival at the responder, by the responder's clock.
    pub(super) responder_time: Option<Time>,
}

/// Responder at the remote end of a path.
pub(super) trait Responder {
    /// Sends a request of `len` bytes from its IP header on; returns its number, counted from 0 over all that
    /// this socket sent.
    fn send_request(&mut self, len: usize) -> io::Result<u32>;
    /// Receives the next reply, if one arrives within `timeout`.
    fn receive_reply(&mut self, timeout: Duration) -> io::Result<Option<Reply>>;
    /// Returns the next time stamp of a sent request.
    fn departure(&mut self) -> io::Result<Option<Departure>>;
    /// Returns the shortest length of a request.
    fn len_min(&self) -> usize;
    /// Returns the MTU of the interface towards the responder.
    fn mtu(&self) -> io::Result<u32>;
}
