// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budget that all requests of a process share. It limits the memory of listings, which a response holds until its
//! client has received it, and the threads that open exports. No token can use up all the memory, and no export all
//! the threads.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most entries that all responses of this process list together, and those of one token. Each costs some 30 bytes
/// until its client has received it.
const ENTRIES_TOTAL_MAX: usize = 4_000_000;
const ENTRIES_PER_TOKEN_MAX: usize = 2_000_000;

/// Most directories that are read at the same time, in total and for one token. Each costs up to 60 MB more while it
/// is read.
const READS_TOTAL_MAX: usize = 4;
const READS_PER_TOKEN_MAX: usize = 2;

/// Most requests that wait for an export's file system to open it. The file system may be on a host that does not
/// respond, and each request then occupies a thread. There are some 500 threads for all exports.
const OPENS_PER_EXPORT_MAX: usize = 32;

/// Most files whose digests are computed at the same time, in total and for one token.
const DIGESTS_TOTAL_MAX: usize = 8;
const DIGESTS_PER_TOKEN_MAX: usize = 2;

/// Budget for listings and digests, of all tokens or of one.
#[derive(Debug, Clone)]
struct ReadBudget {
    entries: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    digests: Arc<Semaphore>,
}

impl ReadBudget {
    fn new(entries: usize, reads: usize, digests: usize) -> Self {
        let [entries, reads, digests] =
            [entries, reads, digests].map(|permits| Arc::new(Semaphore::new(permits)));
        Self {
            entries,
            reads,
            digests,
        }
    }
}

/// Budget of a process, in total, by token and by export.
#[derive(Debug, Clone)]
pub(super) struct RequestBudget {
    all: ReadBudget,
    per_token: Arc<Mutex<HashMap<String, ReadBudget>>>,
    per_export: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Default for RequestBudget {
    fn default() -> Self {
        Self {
            all: ReadBudget::new(ENTRIES_TOTAL_MAX, READS_TOTAL_MAX, DIGESTS_TOTAL_MAX),
            per_token: Arc::default(),
            per_export: Arc::default(),
        }
    }
}

/// Permits of two budgets, a token's and the total, held until they are dropped.
#[derive(Debug)]
pub(super) struct Permits {
    /// Number of permits of each.
    pub(super) count: u32,
    _permits: [OwnedSemaphorePermit; 2],
}

impl RequestBudget {
    /// Waits until a directory may be read for a token.
    pub(super) async fn acquire_read(&self, token: &str) -> Option<Permits> {
        self.acquire(token, |budget| &budget.reads, 1).await
    }

    /// Reserves entries for a listing of a token, and waits until the budget has them.
    pub(super) async fn reserve(&self, token: &str, count: u32) -> Option<Permits> {
        self.acquire(token, |budget| &budget.entries, count).await
    }

    /// Waits until a file may be read for its digests.
    pub(super) async fn acquire_digest(&self, token: &str) -> Option<Permits> {
        self.acquire(token, |budget| &budget.digests, 1).await
    }

    /// Waits for permits. A request that waits for its token's budget takes nothing from the total.
    async fn acquire(
        &self,
        token: &str,
        kind: fn(&ReadBudget) -> &Arc<Semaphore>,
        count: u32,
    ) -> Option<Permits> {
        let mine = kind(&self.token_budget(token)).clone();
        let mine = mine.acquire_many_owned(count).await.ok()?;
        let all = kind(&self.all).clone();
        let all = all.acquire_many_owned(count).await.ok()?;
        let _permits = [mine, all];
        Some(Permits { count, _permits })
    }

    /// Waits until an export may be opened.
    pub(super) async fn acquire_open(&self, export: &str) -> Option<OwnedSemaphorePermit> {
        self.export_budget(export).acquire_owned().await.ok()
    }

    fn export_budget(&self, export: &str) -> Arc<Semaphore> {
        let mut per_export = self.per_export.lock();
        let new = || Arc::new(Semaphore::new(OPENS_PER_EXPORT_MAX));
        per_export
            .entry(export.to_owned())
            .or_insert_with(new)
            .clone()
    }

    fn token_budget(&self, token: &str) -> ReadBudget {
        let mut per_token = self.per_token.lock();
        let new = || {
            ReadBudget::new(
                ENTRIES_PER_TOKEN_MAX,
                READS_PER_TOKEN_MAX,
                DIGESTS_PER_TOKEN_MAX,
            )
        };
        per_token
            .entry(token.to_owned())
            .or_insert_with(new)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn limits_the_share_of_one_token() {
        let (budget, moment) = (RequestBudget::default(), Duration::from_millis(10));
        let half = ENTRIES_PER_TOKEN_MAX as u32;
        let reserve = async |token, count| timeout(moment, budget.reserve(token, count)).await.ok();
        let mine = reserve("me", half).await;
        // A request that waits for its token's budget blocks no other token.
        assert!(mine.is_some() && reserve("me", half).await.is_none());
        assert!(reserve("you", half).await.is_some());
        drop(mine);
        assert!(reserve("me", half).await.is_some());
        let permits = [
            budget.acquire_read("me").await,
            budget.acquire_read("me").await,
        ];
        assert!(timeout(moment, budget.acquire_read("me")).await.is_err());
        assert!(timeout(moment, budget.acquire_read("you")).await.is_ok());
        drop(permits);
        assert!(timeout(moment, budget.acquire_read("me")).await.is_ok());
    }
}
