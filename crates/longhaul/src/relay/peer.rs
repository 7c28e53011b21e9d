// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another relay that connections may leave through.

use super::profile::Profile;
use std::{net::SocketAddr, sync::Arc};

/// A peer as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Of the legs to it.
    pub(crate) profile: Arc<Profile>,
}
