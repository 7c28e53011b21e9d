// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budget that all requests of a process share. It limits the memory of listings, which a response holds until its
//! client has received it, and the threads that open exports. No token can use up all the memory, and no export all
//! the threads.

use super::response::HttpResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Response, body::Body};
use parking_lot::Mutex;
use std::{collections::HashMap, io, sync::Arc};
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
        Self {
            entries: Arc::new(Semaphore::new(entries)),
            reads: Arc::new(Semaphore::new(reads)),
            digests: Arc::new(Semaphore::new(digests)),
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

/// Permits of two budgets: a token's and the total.
type Permits = [OwnedSemaphorePermit; 2];

impl RequestBudget {
    /// Waits until a directory may be read for a token.
    pub(super) async fn acquire_read(&self, token: &str) -> Option<Permits> {
        let mine = self.token_budget(token).reads.acquire_owned().await.ok()?;
        let all = self.all.reads.clone().acquire_owned().await.ok()?;
        Some([mine, all])
    }

    /// Reserves entries for a listing of a token, if the budget has them now.
    pub(super) fn try_reserve(&self, token: &str, count: u32) -> Option<Reservation> {
        let mine = self
            .token_budget(token)
            .entries
            .try_acquire_many_owned(count)
            .ok()?;
        let all = self
            .all
            .entries
            .clone()
            .try_acquire_many_owned(count)
            .ok()?;
        Some(Reservation::new(count, [mine, all]))
    }

    /// Reserves entries, and waits until the budget has them. A request that waits for its token's budget takes
    /// nothing from the total.
    pub(super) async fn reserve(&self, token: &str, count: u32) -> Option<Reservation> {
        let mine = self
            .token_budget(token)
            .entries
            .acquire_many_owned(count)
            .await
            .ok()?;
        let all = self
            .all
            .entries
            .clone()
            .acquire_many_owned(count)
            .await
            .ok()?;
        Some(Reservation::new(count, [mine, all]))
    }

    /// Waits until an export may be opened.
    pub(super) async fn acquire_open(&self, export: &str) -> Option<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(OPENS_PER_EXPORT_MAX));
        let left = {
            let mut per_export = self.per_export.lock();
            per_export
                .entry(export.to_owned())
                .or_insert_with(new)
                .clone()
        };
        left.acquire_owned().await.ok()
    }

    /// Waits until a file may be read for its digests.
    pub(super) async fn acquire_digest(&self, token: &str) -> Option<Permits> {
        let mine = self
            .token_budget(token)
            .digests
            .acquire_owned()
            .await
            .ok()?;
        let all = self.all.digests.clone().acquire_owned().await.ok()?;
        Some([mine, all])
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
        let budget = per_token.entry(token.to_owned()).or_insert_with(new);
        budget.clone()
    }
}

/// Part of the budget that a listing holds.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    /// Entries reserved.
    pub(super) count: u32,
    #[expect(dead_code, reason = "held until it is dropped")]
    permits: Arc<Permits>,
}

impl Reservation {
    fn new(count: u32, permits: Permits) -> Self {
        let permits = Arc::new(permits);
        Self { count, permits }
    }
}

/// Returns the response with a body that holds its reservation until all of it is sent.
pub(super) fn hold_until_sent(
    response: HttpResponse,
) -> Response<impl Body<Data = Bytes, Error = io::Error>> {
    let (mut head, body) = response.into_parts();
    let reservation = head.extensions.remove::<Reservation>();
    // Values that the closure captures are dropped with the body.
    let body = body.map_err(move |error| {
        let _reservation = &reservation;
        error
    });
    Response::from_parts(head, body)
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
        let mine = budget.try_reserve("me", half);
        assert!(mine.is_some() && budget.try_reserve("me", 1).is_none());
        // A request that waits for its token's budget blocks no other token.
        let waiting = budget.reserve("me", half);
        assert!(timeout(moment, waiting).await.is_err());
        assert!(budget.try_reserve("you", half).is_some());
        drop(mine);
        assert!(budget.try_reserve("me", half).is_some());
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
