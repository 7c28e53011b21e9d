// SPDX-License-Identifier: MIT OR Apache-2.0
//! Something that answers packets, however it is asked.

use longhaul_linux::timestamps::Departure;
use longhaul_units::Time;
use std::{io, time::Duration};

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Of the question.
    pub(super) number: u32,
    /// When it came back, by the clock of `longhaul_linux::clock::wall`.
    pub(super) at: Time,
    /// When the question came to the far end, by the clock there.
    pub(super) there: Option<Time>,
}

/// One far end.
pub(super) trait Echo {
    /// Sends a packet of `len` bytes from its IP header on; its number, counted from 0 over all that
    /// this socket sent.
    fn ask(&mut self, len: usize) -> io::Result<u32>;
    /// The next answer, if one comes within `patience`.
    fn answer(&mut self, patience: Duration) -> io::Result<Option<Answer>>;
    /// The next stamp of a question that left.
    fn departure(&mut self) -> io::Result<Option<Departure>>;
    /// The shortest packet that can be asked.
    fn len_min(&self) -> usize;
    /// MTU of the interface towards it.
    fn mtu(&self) -> io::Result<u32>;
}
