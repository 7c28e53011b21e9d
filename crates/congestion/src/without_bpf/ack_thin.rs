// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK control.

use crate::{
    Error,
    ack_thin::{Counts, Settings},
};
use std::{convert::Infallible, os::fd::BorrowedFd};

/// Active ACK control.
#[derive(Debug)]
pub struct AckControl(Infallible);

/// Returns [`Error::WithoutBpf`].
pub fn attach(_cgroup: BorrowedFd<'_>, _settings: &Settings) -> Result<AckControl, Error> {
    Err(Error::WithoutBpf)
}

impl AckControl {
    /// Returns the counts so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        match self.0 {}
    }
}
