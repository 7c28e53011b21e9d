// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles of a cgroup's sockets.

use super::loader::MapHandle;
use crate::{
    Error,
    sockets::profile::{Counts, Profile},
};
use std::{convert::Infallible, os::fd::BorrowedFd, time::Duration};

/// An attached profile.
#[derive(Debug)]
pub struct Attached(Infallible);

/// Returns [`Error::WithoutBpf`].
pub fn permitted() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn attach(
    _profile: &Profile,
    _cgroup: BorrowedFd<'_>,
    _connections: Option<&MapHandle>,
    _notify: bool,
) -> Result<Attached, Error> {
    Err(Error::WithoutBpf)
}

impl Attached {
    /// Returns the counts so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        match self.0 {}
    }

    /// Opens a notifier of sockets that are about to connect or to be bound.
    pub fn notifier(&self) -> Result<SocketNotifier, Error> {
        match self.0 {}
    }
}

/// Notifies when a socket of the cgroup is about to connect or has been bound.
#[derive(Debug)]
pub struct SocketNotifier(Infallible);

impl SocketNotifier {
    /// Waits for a notification, for at most this time.
    #[must_use]
    pub fn wait(&self, _at_most: Duration) -> bool {
        match self.0 {}
    }
}
