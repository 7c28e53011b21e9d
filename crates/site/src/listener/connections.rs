// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on connections, in total and by host. If the total is reached, a new connection evicts the oldest one that is
//! not authenticated yet.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

/// Maximum numbers of connections at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// In total. Beyond it the oldest unauthenticated connection is closed, or the new one if all are authenticated.
    pub(crate) total: usize,
    /// From one IPv4 address or one IPv6 /64, because a single host may have a /64. Beyond it new connections from
    /// there are closed at once.
    pub(crate) per_host: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimiter {
    limits: ConnectionLimits,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    counts: HashMap<IpAddr, usize>,
    /// Unauthenticated connections, by age.
    unauthenticated: BTreeMap<u64, PendingConnection>,
    next_id: u64,
}

#[derive(Debug)]
struct PendingConnection {
    host: IpAddr,
    evicted: Arc<Notify>,
}

/// Permit for one connection. Dropping it releases the permit.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    table: Arc<Mutex<Table>>,
    host: IpAddr,
    id: u64,
    evicted: Arc<Notify>,
    is_authenticated: Mutex<bool>,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let table = Arc::default();
        Self { limits, table }
    }

    /// Returns a permit, or `None` if the limits are reached.
    pub(crate) fn try_acquire(&self, host: IpAddr) -> Option<ConnectionPermit> {
        let host = network(host);
        let mut table = self.table.lock();
        let total: usize = table.counts.values().sum();
        let per_host = table.counts.get(&host).copied().unwrap_or_default();
        if per_host >= self.limits.per_host || total >= self.limits.total && !table.evict_oldest() {
            return None;
        }
        let evicted = Arc::<Notify>::default();
        let id = table.insert(host, evicted.clone());
        Some(ConnectionPermit {
            table: self.table.clone(),
            host,
            id,
            evicted,
            is_authenticated: Mutex::default(),
        })
    }
}

impl Table {
    fn insert(&mut self, host: IpAddr, evicted: Arc<Notify>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        *self.counts.entry(host).or_default() += 1;
        self.unauthenticated
            .insert(id, PendingConnection { host, evicted });
        id
    }

    /// Evicts the oldest unauthenticated connection, if there is one.
    fn evict_oldest(&mut self) -> bool {
        let Some((_, PendingConnection { host, evicted })) = self.unauthenticated.pop_first()
        else {
            return false;
        };
        self.release(host);
        evicted.notify_one();
        true
    }

    fn release(&mut self, host: IpAddr) {
        match self.counts.get_mut(&host) {
            Some(per_host) if *per_host > 1 => *per_host -= 1,
            _ => drop(self.counts.remove(&host)),
        }
    }
}

impl ConnectionPermit {
    /// Marks the connection as authenticated. It can't be evicted any more.
    pub(crate) fn mark_authenticated(&self) {
        let mut table = self.table.lock();
        // A connection that was evicted meanwhile is no longer in the table. It is about to be closed.
        *self.is_authenticated.lock() |= table.unauthenticated.remove(&self.id).is_some();
    }

    /// Waits until the connection must be closed: it was not authenticated within `limit`, or was evicted. Never returns
    /// for an authenticated connection.
    pub(crate) async fn wait_for_eviction(&self, limit: Duration) {
        // After either event, the connection is closed if it is not authenticated.
        let _ = timeout(limit, self.evicted.notified()).await;
        if *self.is_authenticated.lock() {
            pending::<()>().await;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        let was_pending = table.unauthenticated.remove(&self.id).is_some();
        if was_pending || *self.is_authenticated.lock() {
            table.release(self.host);
        }
    }
}

/// Returns the network that one host may have: an IPv4 address, or 64 bits of IPv6.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_connections_of_one_host() {
        let connections = ConnectionLimiter::new(ConnectionLimits {
            total: 64,
            per_host: 32,
        });
        let try_acquire = |host: &str| connections.try_acquire(host.parse().unwrap());
        let greedy: Vec<_> = std::iter::from_fn(|| try_acquire("192.0.2.1")).collect();
        assert_eq!(greedy.len(), 32);
        assert!(try_acquire("::ffff:192.0.2.1").is_none(), "IPv4-mapped");
        let networks = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let [one, same, other] = networks.map(|host| network(host.parse().unwrap()));
        assert!(one == same && one != other);
        greedy.iter().for_each(ConnectionPermit::mark_authenticated);
        let others: Vec<_> = (0..32)
            .filter_map(|number| try_acquire(&format!("198.51.100.{number}")))
            .collect();
        others.iter().for_each(ConnectionPermit::mark_authenticated);
        assert_eq!(others.len(), 32);
        assert!(
            try_acquire("203.0.113.1").is_none(),
            "all are authenticated"
        );
        drop(greedy);
        assert!(try_acquire("192.0.2.1").is_some());
        drop(others);
        assert!(
            connections.table.lock().counts.is_empty(),
            "closed connections are removed"
        );
    }

    #[tokio::test]
    async fn evicts_the_oldest_unauthenticated_connection() {
        let connections = ConnectionLimiter::new(ConnectionLimits {
            total: 3,
            per_host: 2,
        });
        let try_acquire = |host: &str| connections.try_acquire(host.parse().unwrap()).unwrap();
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(10));
        let (authenticated, oldest) = (try_acquire("192.0.2.1"), try_acquire("192.0.2.1"));
        authenticated.mark_authenticated();
        let younger = try_acquire("192.0.2.2");
        let newest = try_acquire("192.0.2.3");
        oldest.wait_for_eviction(hour).await;
        oldest.mark_authenticated();
        assert!(!*oldest.is_authenticated.lock(), "too late");
        assert!(
            timeout(moment, younger.wait_for_eviction(hour))
                .await
                .is_err()
        );
        assert!(
            timeout(2 * moment, authenticated.wait_for_eviction(moment))
                .await
                .is_err()
        );
        newest.wait_for_eviction(moment).await;
        drop(oldest);
        let table = connections.table.lock();
        assert_eq!(table.counts.values().sum::<usize>(), 3);
    }
}
