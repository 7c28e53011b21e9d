// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials, each of which fails.

use crate::{Error, math::Algorithm};
use std::os::fd::BorrowedFd;

/// Returns [`Error::WithoutBpf`].
pub fn permitted() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn congestion_control(_algorithm: Algorithm) -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn link(_algorithm: Algorithm) -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn socket_parameters(_algorithm: Algorithm, _cgroup: BorrowedFd<'_>) -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn watch() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn window_caps() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn initial_window() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}
