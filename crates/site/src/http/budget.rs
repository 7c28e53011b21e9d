// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budget that all requests of a process share. It limits the memory of listings, which a response holds until its
//! client has received it, and the threads that open exports. No token can use up all the memory, and no export all
//! the threads.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Resource that a request uses while it is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Use {
    /// Entries of a listing. Each costs some 30 bytes until the client has received it.
    Entries,
    /// Directory that is read, which costs up to 60 MB more.
    Read,
    /// File whose digests are computed.
    Digest,
    /// Wait for an export's file system to open it. The file system may be on a host that does not respond, and each
    /// request then occupies a thread. There are some 500 threads for all exports.
    Open,
}

impl Use {
    /// Returns the maximum in total, and that of one token or, for an open, of one export.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Entries => (4_000_000, 2_000_000),
            Self::Read => (4, 2),
            Self::Digest => (8, 2),
            Self::Open => (Semaphore::MAX_PERMITS, 32),
        }
    }
}

/// Budget of a process: a semaphore for each use in total, whose name is empty, and for each token or export.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestBudget(Arc<Mutex<Semaphores>>);

type Semaphores = HashMap<(Use, String), Arc<Semaphore>>;

/// Permits of two budgets, a token's and the total, held until they are dropped.
#[derive(Debug)]
pub(super) struct Permits {
    /// Number of permits of each.
    pub(super) count: u32,
    _permits: [OwnedSemaphorePermit; 2],
}

impl RequestBudget {
    /// Waits for permits. A request that waits for its token's budget takes nothing from the total.
    pub(super) async fn acquire(&self, kind: Use, name: &str, count: u32) -> Option<Permits> {
        let (total, share) = kind.limits();
        let mine = self.semaphore(kind, name, share);
        let mine = mine.acquire_many_owned(count).await.ok()?;
        let all = self.semaphore(kind, "", total);
        let _permits = [mine, all.acquire_many_owned(count).await.ok()?];
        Some(Permits { count, _permits })
    }

    fn semaphore(&self, kind: Use, name: &str, limit: usize) -> Arc<Semaphore> {
        let mut semaphores = self.0.lock();
        let semaphore = semaphores.entry((kind, name.to_owned()));
        let new = || Arc::new(Semaphore::new(limit));
        semaphore.or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn limits_the_share_of_one_token() {
        for kind in [Use::Entries, Use::Read, Use::Digest] {
            let (budget, share) = (RequestBudget::default(), kind.limits().1 as u32);
            let acquire = async |name: &str| {
                let permits = budget.acquire(kind, name, share);
                timeout(Duration::from_millis(10), permits).await.ok()
            };
            let mine = acquire("me").await;
            // A request that waits for its token's budget blocks no other token.
            assert!(mine.is_some() && acquire("me").await.is_none());
            assert!(acquire("you").await.is_some());
            drop(mine);
            assert!(acquire("me").await.is_some());
        }
    }
}
