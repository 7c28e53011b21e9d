// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of a peer: the configured one, and those that are known for its name.

use longhaul_protocol::destination::Destination;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;

/// Configured address of a peer, and the socket addresses that are known for it.
#[derive(Debug)]
pub(crate) struct PeerAddress {
    destination: Destination,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl PeerAddress {
    pub(crate) fn new(destination: Destination) -> Self {
        let addresses = match &destination {
            Destination::Address(address) => vec![*address],
            Destination::Name(..) => Vec::new(),
        };
        Self {
            destination,
            addresses: addresses.into(),
        }
    }

    /// Returns the configured address.
    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Returns whether `address` is one of the peer's known addresses.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.addresses().contains(&address)
    }

    /// Stores the addresses that a lookup of the peer's name found, in their order. If the
    /// preferred address is among them, it comes first. Returns the first address.
    pub(crate) fn set_resolved(&self, found: Vec<SocketAddr>) -> Option<SocketAddr> {
        let mut addresses = self.addresses();
        let preferred = addresses.first().copied();
        *addresses = found;
        addresses.sort_by_key(|address| Some(*address) != preferred);
        addresses.first().copied()
    }

    /// Returns the preferred known address, or 0.0.0.0 if none is known.
    pub(crate) fn preferred(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0; 4], self.destination.port()));
        self.addresses().first().copied().unwrap_or(unknown)
    }

    /// Records a successful connection to `address`, which becomes the preferred one.
    pub(crate) fn record_connected(&self, address: SocketAddr) {
        let mut addresses = self.addresses();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        addresses.sort_by_key(|known| *known != address);
        addresses.truncate(ADDRESSES_MAX);
    }

    fn addresses(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses.lock()
    }
}

/// Maximum number of stored addresses.
const ADDRESSES_MAX: usize = 8;
