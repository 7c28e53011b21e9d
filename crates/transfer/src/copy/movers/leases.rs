// SPDX-License-Identifier: MIT OR Apache-2.0
//! The leases that one mover has: renewed while it works, given back when it can't, and believed no longer than they last.

use anyhow::{Result, anyhow, bail};
use longhaul_command::threads;
use longhaul_leases::{Board, Lease, NewExtent, Token};
use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

/// Leases are renewed so many times before they are over.
const RENEWALS_PER_LEASE: u32 = 4;

/// Between two looks whether something is done.
const RENEW_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long who gave an extent back leaves it to others, at most: no longer than a lease.
const RELEASE_DELAY_MAX: Duration = Duration::from_secs(5);

/// How often an extent is tried, by whomever, before it is left to the conversation after all extents.
const ATTEMPTS_MAX: u32 = 5;

/// The leases, by the number under which the source knows them.
pub(super) struct HeldLeases<'a> {
    board: &'a Board,
    ttl: Duration,
    leases: BTreeMap<u64, Lease>,
    next_number: u64,
    /// When they are renewed next, and when they are over.
    next_renewal: Instant,
    expires_at: Instant,
}

impl<'a> HeldLeases<'a> {
    pub(super) fn new(board: &'a Board, ttl: Duration) -> Self {
        let now = Instant::now();
        Self {
            board,
            ttl,
            leases: BTreeMap::new(),
            next_number: 0,
            next_renewal: now + ttl / RENEWALS_PER_LEASE,
            expires_at: now + ttl,
        }
    }

    /// The number of a new one.
    pub(super) fn insert(&mut self, lease: Lease) -> u64 {
        if self.leases.is_empty() {
            self.next_renewal = lease.until - self.ttl + self.ttl / RENEWALS_PER_LEASE;
        }
        self.expires_at = match self.leases.is_empty() {
            true => lease.until,
            false => self.expires_at.min(lease.until),
        };
        self.next_number += 1;
        self.leases.insert(self.next_number, lease);
        self.next_number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How long what it has may be worked on.
    pub(super) fn remaining_time(&self) -> Duration {
        self.expires_at.saturating_duration_since(Instant::now())
    }

    /// Renews them if it is time to; an error if one is not its own any more, or may not be. Whether it did.
    pub(super) fn renew(&mut self) -> Result<bool> {
        let now = Instant::now();
        if self.leases.is_empty() || now < self.next_renewal {
            return Ok(false);
        }
        let tokens: Vec<Token> = self.leases.values().map(|lease| lease.token).collect();
        match self.board.renew(&tokens, self.ttl) {
            Ok(renewed) if renewed.tokens.len() == tokens.len() => {
                self.expires_at = renewed.until;
                self.next_renewal = Instant::now() + self.ttl / RENEWALS_PER_LEASE;
                Ok(true)
            }
            Ok(_) => bail!("others have got what this mover had"),
            Err(error) if error.is_unreachable() && now < self.expires_at => {
                self.next_renewal = now + Duration::from_secs(1);
                Ok(false)
            }
            Err(error) => bail!("its work may be others' now: {error}"),
        }
    }

    /// Does something that may take longer than the leases last, and renews them meanwhile.
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
            done.map_err(|_| anyhow!("it panicked"))
        })
    }

    fn release_delay(&self) -> Duration {
        RELEASE_DELAY_MAX.min(self.ttl)
    }

    /// Adds extents, as the one that plans.
    pub(super) fn add(&mut self, extents: &[NewExtent]) -> Result<()> {
        let Some(lease) = self.leases.values().next() else {
            bail!("nothing is held");
        };
        match self.board.add(lease.token, extents)? {
            Some(_) => Ok(()),
            None => bail!("another mover plans now"),
        }
    }

    /// All of an extent is durable, or why it is not. What others have by now is theirs.
    pub(super) fn complete(&mut self, number: u64, failed: Option<&str>) -> Result<Option<Lease>> {
        let Some(lease) = self.leases.remove(&number) else {
            return Ok(None);
        };
        match failed {
            None => self.board.done(lease.token, b"")?,
            Some(why) if lease.tries >= ATTEMPTS_MAX => self.board.fail(lease.token, why)?,
            Some(why) => self
                .board
                .give_back(lease.token, why, self.release_delay())?,
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

    /// For others at once. Whom the database does not hear, waits until they are over.
    pub(super) fn release_all(&mut self, why: &str) {
        for lease in std::mem::take(&mut self.leases).into_values() {
            let _over_by_itself = self.board.give_back(lease.token, why, self.release_delay());
        }
    }
}
