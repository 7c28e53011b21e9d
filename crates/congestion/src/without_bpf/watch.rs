// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of longhaul's congestion controls.

use super::loader::Loaded;
use crate::{
    Error,
    watch::{Connection, Ends, ack_counts::AckCounts},
};
use std::convert::Infallible;

/// The loaded iterator.
#[derive(Debug)]
pub struct Watch(Infallible);

impl Watch {
    /// Returns [`Error::WithoutBpf`].
    pub fn new() -> Result<Self, Error> {
        Err(Error::WithoutBpf)
    }

    /// Returns every socket that uses `loaded` now, listeners included.
    pub fn connections(&self, _loaded: &Loaded) -> Result<Vec<Connection>, Error> {
        match self.0 {}
    }

    /// Returns the ACK counts of the connections.
    pub fn acks(&self, _loaded: &Loaded) -> Result<Vec<(Ends, AckCounts)>, Error> {
        match self.0 {}
    }
}
