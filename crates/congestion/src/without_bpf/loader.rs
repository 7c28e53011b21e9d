// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls of longhaul's, none of which can be loaded.

pub use crate::program::Program;
use crate::{
    Error, choice,
    math::{Algorithm, algorithms},
    pins::Pins,
};
use std::{convert::Infallible, os::fd::BorrowedFd, path::Path, time::SystemTime};

/// Parameters of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Values in the order of [`Algorithm::parameters`].
    pub parameters: &'a [u32],
    /// Whether to record the ACK counts of each connection.
    pub count_acks: bool,
}

/// Outcome of [`load`].
#[derive(Debug)]
pub enum Outcome {
    /// The congestion control was not loaded before.
    New(Loaded),
    /// The same one was loaded with the same parameters; unchanged.
    Same(Loaded),
    /// The loaded one was replaced. The flag says whether open connections can still be watched.
    Replaced(Loaded, bool),
}

/// A loaded congestion control.
#[derive(Debug, Clone)]
pub struct Loaded(Infallible);

/// A map in the kernel.
#[derive(Debug)]
pub enum MapHandle {}

impl Loaded {
    /// Returns the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {}
    }

    /// Returns the directory of its pins.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match self.0 {}
    }

    /// Returns the map of its connections' storage.
    pub fn connections(&self) -> Result<MapHandle, Error> {
        match self.0 {}
    }

    /// Whether ACKs are counted.
    #[must_use]
    pub fn counts_acks(&self) -> bool {
        match self.0 {}
    }

    /// Returns the parameters of new connections, in the order of [`Algorithm::parameters`].
    pub fn parameters(&self) -> Result<Vec<u32>, Error> {
        match self.0 {}
    }

    /// Whether this build can read its connections' state.
    #[must_use]
    pub fn has_same_layout(&self) -> bool {
        match self.0 {}
    }

    /// Returns the version of the longhaul that loaded it.
    #[must_use]
    pub fn loaded_by(&self) -> String {
        match self.0 {}
    }

    /// Returns the time of the load.
    #[must_use]
    pub fn loaded_at(&self) -> Option<SystemTime> {
        match self.0 {}
    }

    /// Whether the congestion control is unloaded with its last lease.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.0 {}
    }

    /// Stores metadata of the caller until the congestion control is unloaded.
    pub fn set_metadata(&self, _name: &str, _value: &str) -> Result<(), Error> {
        match self.0 {}
    }

    /// Returns metadata of the caller.
    #[must_use]
    pub fn metadata(&self, _name: &str) -> Option<String> {
        match self.0 {}
    }

    /// Returns its programs in the kernel.
    pub fn programs(&self) -> Result<Vec<Program>, Error> {
        match self.0 {}
    }

    /// Gives the programs of a cgroup the socket option for parameters.
    pub fn attach_socket_option(&self, _cgroup: BorrowedFd<'_>) -> Result<(), Error> {
        match self.0 {}
    }

    /// Whether a cgroup has the socket option.
    #[must_use]
    pub fn has_socket_option(&self) -> bool {
        match self.0 {}
    }
}

/// Keeps a congestion control loaded until it is dropped.
#[derive(Debug)]
pub struct Lease(Infallible);

impl Lease {
    /// Returns the leased congestion control.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        match self.0 {}
    }
}

/// A congestion control that is registered until this value is dropped.
#[derive(Debug)]
pub struct TransientCc(Infallible);

impl TransientCc {
    /// Returns its name in the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.0 {}
    }
}

/// Returns [`Error::WithoutBpf`].
pub fn permitted() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn load(
    _pins: &Pins,
    _algorithm: Algorithm,
    _request: Request<'_>,
    _may_replace: bool,
) -> Result<Outcome, Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn unload(_pins: &Pins, _algorithm: Algorithm) -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

/// Returns `None` if the congestion control is not in the kernel. If it is, another longhaul loaded it: only eBPF can
/// read its state.
pub fn loaded(_pins: &Pins, algorithm: Algorithm) -> Result<Option<Loaded>, Error> {
    if choice::is_registered(&algorithm.system_name()) {
        Err(Error::WithoutBpf)
    } else {
        Ok(None)
    }
}

/// Like [`loaded`], for all congestion controls.
pub fn all_loaded(pins: &Pins) -> Result<Vec<Loaded>, Error> {
    algorithms()
        .filter_map(|algorithm| loaded(pins, algorithm).transpose())
        .collect()
}

/// Returns no names if no congestion control of longhaul's is in the kernel: then killed programs left none.
pub fn clean(pins: &Pins) -> Result<Vec<String>, Error> {
    all_loaded(pins).map(|_| Vec::new())
}

/// Returns [`Error::WithoutBpf`].
pub fn acquire(_pins: &Pins, _algorithm: Algorithm, _parameters: &[u32]) -> Result<Lease, Error> {
    Err(Error::WithoutBpf)
}

/// Returns [`Error::WithoutBpf`].
pub fn register_transient(
    _algorithm: Algorithm,
    _parameters: &[u32],
) -> Result<TransientCc, Error> {
    Err(Error::WithoutBpf)
}
