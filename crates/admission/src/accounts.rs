// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts: the connections and lookups that one client has at a time. A client is one address, or one /64 of IPv6.
//! An account lives as long as its client has a connection.

use longhaul_protocol::networks::network;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::Semaphore;

/// The client that an account belongs to. A relay speaks for many clients, so it has an account of its own, even where
/// a client has the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNetwork {
    /// The client's address; of IPv6 the first of its /64.
    pub address: IpAddr,
    /// Whether the client is another longhaul relay, which has many clients itself.
    pub is_relay: bool,
}

impl ClientNetwork {
    /// Returns the network of `client`, in whose account its connections count.
    pub fn new(client: IpAddr, is_relay: bool) -> Self {
        Self {
            address: network(client),
            is_relay,
        }
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_network = self.address.is_ipv6() && !self.address.is_loopback();
        let len = if is_network { "/64" } else { "" };
        write!(f, "{}{len}", self.address)
    }
}

/// One client's account.
#[derive(Debug)]
pub struct Account {
    /// The client.
    pub client_network: ClientNetwork,
    /// One permit for each name lookup that the client may have in flight.
    pub lookups: Semaphore,
    connections: AtomicUsize,
}

/// A permit for one connection of a client. Dropping the permit gives it back.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Account>);

impl Account {
    /// Returns a permit for another connection; `None` if the client has `max` already.
    #[allow(deprecated)] // Rust 1.95 has a new name for `fetch_update`, which the oldest supported Rust lacks.
    pub fn acquire_connection(self: &Arc<Self>, max: usize) -> Option<ConnectionPermit> {
        let more = |connections| (connections < max).then_some(connections + 1);
        let previous = self.connections.fetch_update(Relaxed, Relaxed, more);
        previous.ok().map(|_| ConnectionPermit(self.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// The accounts of all clients that have connections.
#[derive(Debug, Default)]
pub struct Accounts(Mutex<HashMap<ClientNetwork, Weak<Account>>>);

/// Smallest table of accounts that is cleaned up. A cleanup removes the accounts of clients without connections, each
/// time that the table would have to grow.
const CLEANUP_FROM: usize = 64;

impl Accounts {
    /// Returns the number of open connections of `client_network`.
    pub fn connections(&self, client_network: ClientNetwork) -> usize {
        let account = self.0.lock().get(&client_network).and_then(Weak::upgrade);
        account.map_or(0, |account| account.connections.load(Relaxed))
    }

    /// Returns the account of `client_network`, which all its connections share, or creates it. A new account may have
    /// `lookups` lookups in flight; that of a relay has no such bound.
    pub fn get_or_create(&self, client_network: ClientNetwork, lookups: usize) -> Arc<Account> {
        let mut accounts = self.0.lock();
        if let Some(account) = accounts.get(&client_network).and_then(Weak::upgrade) {
            return account;
        }
        if accounts.len() >= CLEANUP_FROM && accounts.len() == accounts.capacity() {
            accounts.retain(|_, account| account.strong_count() > 0);
        }
        let lookups = if client_network.is_relay {
            Semaphore::MAX_PERMITS
        } else {
            lookups
        };
        let account = Arc::new(Account {
            client_network,
            lookups: Semaphore::new(lookups),
            connections: AtomicUsize::new(0),
        });
        accounts.insert(client_network, Arc::downgrade(&account));
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_network(n: u32) -> ClientNetwork {
        ClientNetwork {
            address: IpAddr::V4(n.into()),
            is_relay: false,
        }
    }

    #[test]
    fn connections_of_a_client_share_its_account() {
        let accounts = Accounts::default();
        let (one, two) = (
            accounts.get_or_create(client_network(1), 5),
            accounts.get_or_create(client_network(1), 9),
        );
        assert!(Arc::ptr_eq(&one, &two));
        let relay = ClientNetwork {
            is_relay: true,
            ..client_network(1)
        };
        assert!(!Arc::ptr_eq(&one, &accounts.get_or_create(relay, 5)));
        assert_eq!(one.lookups.available_permits(), 5);
    }

    #[test]
    fn counts_an_ipv6_network_as_one_client() {
        let shown = |ip: &str| ClientNetwork::new(ip.parse().unwrap(), false).to_string();
        assert_eq!(shown("2001:db8::1:2:3:4"), "2001:db8::/64");
        assert_eq!(shown("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("::1"), "::1");
    }

    #[test]
    fn counts_a_connection_until_its_permit_is_dropped() {
        let account = Accounts::default().get_or_create(client_network(1), 5);
        let first = account.acquire_connection(2);
        let _second = account.acquire_connection(2).unwrap();
        assert!(account.acquire_connection(2).is_none());
        drop(first);
        assert!(account.acquire_connection(2).is_some());
    }

    #[test]
    fn removes_clients_without_connections() {
        let accounts = Accounts::default();
        for n in 0..100_000 {
            accounts.get_or_create(client_network(n), 5);
        }
        assert!(accounts.0.lock().len() < 1000);
    }
}
