// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a peer is, for all that is known.

use longhaul_protocol::destination::Destination;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;

/// A peer's place, and the addresses that its name had last.
#[derive(Debug)]
pub(crate) struct Place {
    destination: Destination,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl Place {
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

    /// As it is configured.
    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether it is at `address`, for all that is known.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        self.addresses().contains(&address)
    }

    /// Its name has these addresses now. The order stays, with the address first that was reached last.
    pub(crate) fn has(&self, found: Vec<SocketAddr>) -> Option<SocketAddr> {
        let mut addresses = self.addresses();
        let reached = addresses.first().copied();
        *addresses = found;
        addresses.sort_by_key(|address| Some(*address) != reached);
        addresses.first().copied()
    }

    /// Where it was last, for all that is known: 0.0.0.0 if nothing is.
    pub(crate) fn last(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0; 4], self.destination.port()));
        self.addresses().first().copied().unwrap_or(unknown)
    }

    /// A connection to it stands, at `address`.
    pub(crate) fn was_reached(&self, address: SocketAddr) {
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

/// Addresses of a name that are remembered.
const ADDRESSES_MAX: usize = 8;
