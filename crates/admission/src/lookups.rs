// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on name lookups in flight. A client above its own bound waits for its own lookups. When the bound of all
//! clients together is reached, the oldest lookup of the client that has most is cancelled. So a name server that does
//! not answer one client's lookups blocks no other client.

use crate::accounts::{Account, ClientNetwork};
use longhaul_protocol::failure::Failure;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use tokio::{
    select,
    sync::{Notify, SemaphorePermit},
};

/// Descriptors that one lookup may hold: two name servers, and for each a socket per address family.
pub const DESCRIPTORS_PER_LOOKUP: usize = 4;

/// All lookups in flight.
#[derive(Debug)]
pub struct Lookups {
    max: usize,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next_number: u64,
    /// Oldest first.
    in_flight: Vec<InFlight>,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    client_network: ClientNetwork,
    cancelled: Arc<Notify>,
}

/// The bounds on one client's lookups.
#[derive(Debug, Clone, Copy)]
pub struct LookupQuota<'a> {
    /// The bound on the lookups of all clients together.
    pub lookups: &'a Lookups,
    /// The client's own bound.
    pub account: &'a Account,
}

/// A permit for one lookup, returned on drop.
#[derive(Debug)]
pub struct LookupPermit<'a> {
    lookups: &'a Lookups,
    number: u64,
    cancelled: Arc<Notify>,
    _own: Option<SemaphorePermit<'a>>,
}

impl Lookups {
    /// Allows at most `max` lookups of all clients together.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            list: Mutex::default(),
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }
}

impl<'a> LookupQuota<'a> {
    /// Waits until the client may have another lookup in flight.
    pub async fn acquire(self) -> LookupPermit<'a> {
        // The semaphore is never closed, so this never fails.
        let own = self.account.lookups.acquire().await.ok();
        let mut list = self.lookups.list();
        if list.in_flight.len() >= self.lookups.max {
            list.cancel_oldest_of_largest_client();
        }
        let (number, cancelled) = (list.next_number, Arc::<Notify>::default());
        list.next_number += 1;
        list.in_flight.push(InFlight {
            number,
            client_network: self.account.client_network,
            cancelled: cancelled.clone(),
        });
        LookupPermit {
            lookups: self.lookups,
            number,
            cancelled,
            _own: own,
        }
    }
}

impl List {
    fn cancel_oldest_of_largest_client(&mut self) {
        let mut counts = HashMap::new();
        for lookup in &self.in_flight {
            *counts.entry(lookup.client_network).or_insert(0) += 1;
        }
        let most = counts.values().copied().max();
        let is_of_largest = |lookup: &InFlight| counts.get(&lookup.client_network).copied() == most;
        if let Some(index) = self.in_flight.iter().position(is_of_largest) {
            self.in_flight.remove(index).cancelled.notify_one();
        }
    }
}

impl LookupPermit<'_> {
    /// Waits for `lookup`.
    ///
    /// # Errors
    ///
    /// Errors of `lookup`; [`Failure::Exhausted`] if the lookup was cancelled in favour of another client's.
    pub async fn run<T>(
        &self,
        lookup: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        select! {
            outcome = lookup => outcome,
            () = self.cancelled.notified() => Err(Failure::Exhausted),
        }
    }
}

impl Drop for LookupPermit<'_> {
    fn drop(&mut self) {
        let mut list = self.lookups.list();
        list.in_flight.retain(|lookup| lookup.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Accounts;
    use std::future::pending;
    use tokio::time::{Duration, timeout};

    fn account(n: u8, lookups: usize) -> Arc<Account> {
        let client_network = ClientNetwork {
            address: [192, 0, 2, n].into(),
            is_relay: false,
        };
        Accounts::default().get_or_create(client_network, lookups)
    }

    #[tokio::test]
    async fn cancels_the_oldest_lookup_of_the_client_that_has_most() {
        let lookups = Lookups::new(4);
        let (greedy, modest) = (account(1, 9), account(2, 9));
        let quota = |account| LookupQuota {
            lookups: &lookups,
            account,
        };
        let own = quota(&modest).acquire().await;
        let first = quota(&greedy).acquire().await;
        let _others = [
            quota(&greedy).acquire().await,
            quota(&greedy).acquire().await,
        ];
        let _next = quota(&modest).acquire().await;
        let outcome = first.run(pending::<Result<(), _>>()).await;
        assert_eq!(outcome, Err(Failure::Exhausted));
        let kept = timeout(Duration::ZERO, own.run(pending::<Result<(), _>>()));
        assert!(kept.await.is_err(), "another client's lookup was cancelled");
        assert_eq!(lookups.list().in_flight.len(), 4);
    }

    #[tokio::test]
    async fn waits_for_lookups_of_the_same_client() {
        let lookups = Lookups::new(100);
        let client = account(1, 2);
        let quota = LookupQuota {
            lookups: &lookups,
            account: &client,
        };
        let (one, _two) = (quota.acquire().await, quota.acquire().await);
        assert!(timeout(Duration::ZERO, quota.acquire()).await.is_err());
        drop(one);
        let _three = quota.acquire().await;
        let other = account(2, 2);
        let quota = LookupQuota {
            account: &other,
            ..quota
        };
        let _four = quota.acquire().await;
    }
}
