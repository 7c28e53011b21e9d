// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on lookups of names that are under way. A client has a number of its own and waits for
//! itself when it is used up. All clients together have a number, too: when that is used up, the
//! oldest lookup of the client that has most of them ends, so that nobody's silent name server
//! keeps other clients' names out.

use crate::admission::accounts::{Account, Holder};
use longhaul_protocol::failure::Failure;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use tokio::{
    select,
    sync::{Notify, SemaphorePermit},
};

/// Descriptors that one lookup may hold: a socket for each of two families at each of two name
/// servers.
pub(crate) const DESCRIPTORS: usize = 4;

/// All lookups under way.
#[derive(Debug)]
pub(crate) struct Lookups {
    max: usize,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    /// In the order in which they began.
    under_way: Vec<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    holder: Holder,
    cut: Arc<Notify>,
}

/// Who asks for a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) lookups: &'a Lookups,
    pub(crate) account: &'a Account,
}

/// A lookup's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lookups: &'a Lookups,
    number: u64,
    cut: Arc<Notify>,
    _own: Option<SemaphorePermit<'a>>,
}

impl Lookups {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            list: Mutex::default(),
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }
}

impl<'a> Asker<'a> {
    /// Waits until the client may have another lookup under way.
    pub(crate) async fn place(self) -> Place<'a> {
        // An error would mean that the semaphore is closed, which nobody does.
        let own = self.account.lookups.acquire().await.ok();
        let mut list = self.lookups.list();
        if list.under_way.len() >= self.lookups.max {
            list.cut_oldest_of_greediest();
        }
        let (number, cut) = (list.next, Arc::<Notify>::default());
        list.next += 1;
        list.under_way.push(UnderWay {
            number,
            holder: self.account.holder,
            cut: cut.clone(),
        });
        Place {
            lookups: self.lookups,
            number,
            cut,
            _own: own,
        }
    }
}

impl List {
    fn cut_oldest_of_greediest(&mut self) {
        let mut counts = HashMap::new();
        for lookup in &self.under_way {
            *counts.entry(lookup.holder).or_insert(0) += 1;
        }
        let most = counts.values().copied().max();
        let greedy = |lookup: &UnderWay| counts.get(&lookup.holder).copied() == most;
        if let Some(index) = self.under_way.iter().position(greedy) {
            self.under_way.remove(index).cut.notify_one();
        }
    }
}

impl Place<'_> {
    /// Waits for `lookup`, unless its place is needed for another client's.
    pub(crate) async fn hold<T>(
        &self,
        lookup: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        select! {
            outcome = lookup => outcome,
            () = self.cut.notified() => Err(Failure::Exhausted),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut list = self.lookups.list();
        list.under_way.retain(|lookup| lookup.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::accounts::Accounts;
    use std::future::pending;
    use tokio::time::{Duration, timeout};

    fn account(n: u8, lookups: usize) -> Arc<Account> {
        let holder = Holder {
            address: [192, 0, 2, n].into(),
            is_relay: false,
        };
        Accounts::default().of(holder, lookups)
    }

    #[tokio::test]
    async fn the_greediest_client_loses_its_oldest_lookup() {
        let lookups = Lookups::new(4);
        let (greedy, modest) = (account(1, 9), account(2, 9));
        let asker = |account| Asker {
            lookups: &lookups,
            account,
        };
        let own = asker(&modest).place().await;
        let first = asker(&greedy).place().await;
        let _others = [asker(&greedy).place().await, asker(&greedy).place().await];
        let _next = asker(&modest).place().await;
        let cut = first.hold(pending::<Result<(), _>>()).await;
        assert_eq!(cut, Err(Failure::Exhausted));
        let kept = timeout(Duration::ZERO, own.hold(pending::<Result<(), _>>()));
        assert!(kept.await.is_err(), "another client's lookup was cut");
        assert_eq!(lookups.list().under_way.len(), 4);
    }

    #[tokio::test]
    async fn a_client_waits_for_its_own_lookups() {
        let lookups = Lookups::new(100);
        let client = account(1, 2);
        let asker = Asker {
            lookups: &lookups,
            account: &client,
        };
        let (one, _two) = (asker.place().await, asker.place().await);
        assert!(timeout(Duration::ZERO, asker.place()).await.is_err());
        drop(one);
        let _three = asker.place().await;
        let other = account(2, 2);
        let asker = Asker {
            account: &other,
            ..asker
        };
        let _four = asker.place().await;
    }
}
