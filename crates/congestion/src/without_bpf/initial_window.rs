// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initial windows of single sockets.

pub use crate::Error;

use std::{io, os::fd::AsFd};

/// Returns [`Error::WithoutBpf`].
///
/// # Errors
/// Always.
pub fn attach() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
///
/// # Errors
/// Always.
pub fn set(socket: &impl AsFd, segments: u32) -> io::Result<()> {
    set_start(socket, Some(segments), false)
}

/// Returns [`Error::WithoutBpf`].
///
/// # Errors
/// Always.
pub fn set_start(_socket: &impl AsFd, _segments: Option<u32>, _offers_ecn: bool) -> io::Result<()> {
    Err(io::Error::other(Error::WithoutBpf))
}

/// Returns [`Error::WithoutBpf`].
///
/// # Errors
/// Always.
pub fn attached_to(_cgroup: impl AsFd) -> io::Result<usize> {
    Err(io::Error::other(Error::WithoutBpf))
}
