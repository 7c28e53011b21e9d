// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each client holds of what all clients share: who has one address, of IPv6 one /64. An account lives as long as a
//! connection of its client does.

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

/// Who an account belongs to. A relay speaks for many clients, so its account is its own even where
/// a client has the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    /// Of IPv6 the first of its /64.
    pub(crate) address: IpAddr,
    pub(crate) is_relay: bool,
}

impl Holder {
    pub(crate) fn new(client: IpAddr, is_relay: bool) -> Self {
        Self {
            address: network(client),
            is_relay,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_network = self.address.is_ipv6() && !self.address.is_loopback();
        let len = if is_network { "/64" } else { "" };
        write!(f, "{}{len}", self.address)
    }
}

/// One client's account.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) holder: Holder,
    /// One permit a lookup that it may have under way.
    pub(crate) lookups: Semaphore,
    connections: AtomicUsize,
}

/// One of a client's connections, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Account>);

impl Account {
    /// Counts another connection, if there are fewer than `most`.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<Entered> {
        let more = |connections| (connections < most).then_some(connections + 1);
        let counted = self.connections.fetch_update(Relaxed, Relaxed, more);
        counted.ok().map(|_| Entered(self.clone()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// The accounts of all clients that have connections.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<Holder, Weak<Account>>>);

/// Accounts of clients that have left are removed at the latest when there are this many, and at
/// each doubling.
const REMOVE_FROM: usize = 64;

impl Accounts {
    /// Connections of `holder` that are open.
    pub(crate) fn connections(&self, holder: Holder) -> usize {
        let account = self.0.lock().get(&holder).and_then(Weak::upgrade);
        account.map_or(0, |account| account.connections.load(Relaxed))
    }

    /// The account of `holder`, shared by all its connections. A new one may have `lookups` under
    /// way; a relay's has no such bound.
    pub(crate) fn of(&self, holder: Holder, lookups: usize) -> Arc<Account> {
        let mut accounts = self.0.lock();
        if let Some(account) = accounts.get(&holder).and_then(Weak::upgrade) {
            return account;
        }
        if accounts.len() >= REMOVE_FROM && accounts.len() == accounts.capacity() {
            accounts.retain(|_, account| account.strong_count() > 0);
        }
        let lookups = match holder.is_relay {
            true => Semaphore::MAX_PERMITS,
            false => lookups,
        };
        let account = Arc::new(Account {
            holder,
            lookups: Semaphore::new(lookups),
            connections: AtomicUsize::new(0),
        });
        accounts.insert(holder, Arc::downgrade(&account));
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(n: u32) -> Holder {
        Holder {
            address: IpAddr::V4(n.into()),
            is_relay: false,
        }
    }

    #[test]
    fn connections_of_a_client_share_its_account() {
        let accounts = Accounts::default();
        let (one, two) = (accounts.of(holder(1), 5), accounts.of(holder(1), 9));
        assert!(Arc::ptr_eq(&one, &two));
        let relay = Holder {
            is_relay: true,
            ..holder(1)
        };
        assert!(!Arc::ptr_eq(&one, &accounts.of(relay, 5)));
        assert_eq!(one.lookups.available_permits(), 5);
    }

    #[test]
    fn a_network_is_one_holder() {
        let shown = |ip: &str| Holder::new(ip.parse().unwrap(), false).to_string();
        assert_eq!(shown("2001:db8::1:2:3:4"), "2001:db8::/64");
        assert_eq!(shown("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("::1"), "::1");
    }

    #[test]
    fn a_connection_counts_until_it_is_over() {
        let account = Accounts::default().of(holder(1), 5);
        let first = account.enter(2);
        let _second = account.enter(2).unwrap();
        assert!(account.enter(2).is_none());
        drop(first);
        assert!(account.enter(2).is_some());
    }

    #[test]
    fn clients_that_left_are_removed() {
        let accounts = Accounts::default();
        for n in 0..100_000 {
            accounts.of(holder(n), 5);
        }
        assert!(accounts.0.lock().len() < 1000);
    }
}
