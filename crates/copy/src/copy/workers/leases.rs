// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leases of one worker. They are renewed while the worker works, and released when it cannot. After their expiry the worker
//! stops work on them.

use anyhow::{Result, anyhow, bail};
use longhaul_command::threads;
use longhaul_leases::{JobStore, Lease, NewTask, Token};
use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

/// Number of renewals within the duration of a lease.
const RENEWALS_PER_LEASE: u32 = 4;

/// Interval of checks whether an action has ended.
const RENEW_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time for which a released extent is reserved for other workers. It is never longer than a lease.
const RELEASE_DELAY_MAX: Duration = Duration::from_secs(5);

/// Maximum number of attempts at an extent, by any worker. Then the session after all extents copies it.
const ATTEMPTS_MAX: u32 = 5;

/// Leases, by the number that the source has for each extent.
pub(super) struct HeldLeases<'a> {
    job_store: &'a JobStore,
    ttl: Duration,
    leases: BTreeMap<u64, Lease>,
    next_number: u64,
    /// Times of the next renewal and of the expiry.
    next_renewal: Instant,
    expires_at: Instant,
}

impl<'a> HeldLeases<'a> {
    pub(super) fn new(job_store: &'a JobStore, ttl: Duration) -> Self {
        let now = Instant::now();
        Self {
            job_store,
            ttl,
            leases: BTreeMap::new(),
            next_number: 0,
            next_renewal: now + ttl / RENEWALS_PER_LEASE,
            expires_at: now + ttl,
        }
    }

    /// Adds a lease, and returns its number.
    pub(super) fn insert(&mut self, lease: Lease) -> u64 {
        if self.leases.is_empty() {
            self.next_renewal = lease.until - self.ttl + self.ttl / RENEWALS_PER_LEASE;
        }
        self.expires_at = if self.leases.is_empty() {
            lease.until
        } else {
            self.expires_at.min(lease.until)
        };
        self.next_number += 1;
        self.leases.insert(self.next_number, lease);
        self.next_number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether there are leases, and none has expired. Then no other worker has the extents.
    pub(super) fn are_valid(&self) -> bool {
        !self.is_empty() && !self.remaining_time().is_zero()
    }

    /// Returns the time until the leases expire.
    pub(super) fn remaining_time(&self) -> Duration {
        self.expires_at.saturating_duration_since(Instant::now())
    }

    /// Renews the leases if that is due, and returns whether it did. Fails if a lease has expired, or may have expired.
    pub(super) fn renew(&mut self) -> Result<bool> {
        let now = Instant::now();
        if self.leases.is_empty() || now < self.next_renewal {
            return Ok(false);
        }
        let tokens: Vec<Token> = self.leases.values().map(|lease| lease.token).collect();
        match self.job_store.renew(&tokens, self.ttl) {
            Ok(renewed) if renewed.tokens.len() == tokens.len() => {
                self.expires_at = renewed.until;
                self.next_renewal = Instant::now() + self.ttl / RENEWALS_PER_LEASE;
                Ok(true)
            }
            Ok(_) => bail!("its leases expired, and other workers have its work"),
            Err(error) if error.is_unreachable() && now < self.expires_at => {
                self.next_renewal = now + Duration::from_secs(1);
                Ok(false)
            }
            Err(error) => bail!("its leases may have expired: {error}"),
        }
    }

    /// Runs an action that may take longer than a lease lasts, and renews the leases meanwhile.
    pub(super) fn run_while_renewing<T: Send>(
        &mut self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        thread::scope(|scope| {
            let working = threads::spawn_scoped(scope, work)?;
            let mut renewed = Ok(false);
            while !working.is_finished() {
                thread::sleep(RENEW_POLL_INTERVAL);
                renewed = renewed.and_then(|_| self.renew());
            }
            let done = working.join();
            renewed?;
            done.map_err(|_| anyhow!("a thread panicked"))
        })
    }

    fn release_delay(&self) -> Duration {
        RELEASE_DELAY_MAX.min(self.ttl)
    }

    /// Adds extents to the job, under the lease for planning.
    pub(super) fn add(&mut self, extents: &[NewTask]) -> Result<()> {
        let Some(lease) = self.leases.values().next() else {
            bail!("there is no lease for planning");
        };
        match self.job_store.add_tasks(lease.token, extents)? {
            Some(_) => Ok(()),
            None => bail!("another worker is planning now"),
        }
    }

    /// Ends the lease of an extent: as done, or as failed with a reason. No effect if another worker has it by now.
    pub(super) fn complete(&mut self, number: u64, failed: Option<&str>) -> Result<Option<Lease>> {
        let Some(lease) = self.leases.remove(&number) else {
            return Ok(None);
        };
        match failed {
            None => self.job_store.complete(lease.token, b"")?,
            Some(why) if lease.tries >= ATTEMPTS_MAX => self.job_store.fail(lease.token, why)?,
            Some(why) => self
                .job_store
                .release(lease.token, why, self.release_delay())?,
        };
        Ok(Some(lease))
    }

    pub(super) fn complete_all(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.leases.keys().copied().collect();
        for number in numbers {
            self.complete(number, None)?;
        }
        Ok(())
    }

    /// Releases all leases, so that others can take the extents at once. Without the database they expire by themselves.
    pub(super) fn release_all(&mut self, why: &str) {
        for lease in std::mem::take(&mut self.leases).into_values() {
            let _expires_anyway = self
                .job_store
                .release(lease.token, why, self.release_delay());
        }
    }
}
