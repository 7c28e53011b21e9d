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
const RENEWALS: u32 = 4;

/// Between two looks whether something is done.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How long who gave an extent back leaves it to others, at most: no longer than a lease.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often an extent is tried, by whomever, before it is left to the conversation after all extents.
const TRIES_MAX: u32 = 5;

/// The leases, by the number under which the source knows them.
pub(super) struct Leases<'a> {
    board: &'a Board,
    ttl: Duration,
    leases: BTreeMap<u64, Lease>,
    next_number: u64,
    /// When they are renewed next, and when they are over.
    renewal: Instant,
    until: Instant,
}

impl<'a> Leases<'a> {
    pub(super) fn new(board: &'a Board, ttl: Duration) -> Self {
        let now = Instant::now();
        Self {
            board,
            ttl,
            leases: BTreeMap::new(),
            next_number: 0,
            renewal: now + ttl / RENEWALS,
            until: now + ttl,
        }
    }

    /// The number of a new one.
    pub(super) fn take(&mut self, lease: Lease) -> u64 {
        if self.leases.is_empty() {
            self.renewal = lease.until - self.ttl + self.ttl / RENEWALS;
        }
        self.until = match self.leases.is_empty() {
            true => lease.until,
            false => self.until.min(lease.until),
        };
        self.next_number += 1;
        self.leases.insert(self.next_number, lease);
        self.next_number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How long what it has may be worked on.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Renews them if it is time to; an error if one is not its own any more, or may not be. Whether it did.
    pub(super) fn renew(&mut self) -> Result<bool> {
        let now = Instant::now();
        if self.leases.is_empty() || now < self.renewal {
            return Ok(false);
        }
        let tokens: Vec<Token> = self.leases.values().map(|lease| lease.token).collect();
        match self.board.renew(&tokens, self.ttl) {
            Ok(renewed) if renewed.tokens.len() == tokens.len() => {
                self.until = renewed.until;
                self.renewal = Instant::now() + self.ttl / RENEWALS;
                Ok(true)
            }
            Ok(_) => bail!("others have got what this mover had"),
            Err(error) if error.is_unreachable() && now < self.until => {
                self.renewal = now + Duration::from_secs(1);
                Ok(false)
            }
            Err(error) => bail!("its work may be others' now: {error}"),
        }
    }

    /// Does something that may take longer than the leases last, and renews them meanwhile.
    pub(super) fn renewing<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let working = threads::spawn_scoped(scope, work)?;
            let mut renewed = Ok(false);
            while !working.is_finished() {
                thread::sleep(BETWEEN_LOOKS);
                renewed = renewed.and_then(|_| self.renew());
            }
            let done = working.join();
            renewed?;
            done.map_err(|_| anyhow!("it panicked"))
        })
    }

    fn pause(&self) -> Duration {
        PAUSE_MAX.min(self.ttl)
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
    pub(super) fn settle(&mut self, number: u64, failed: Option<&str>) -> Result<Option<Lease>> {
        let Some(lease) = self.leases.remove(&number) else {
            return Ok(None);
        };
        match failed {
            None => self.board.done(lease.token, b"")?,
            Some(why) if lease.tries >= TRIES_MAX => self.board.fail(lease.token, why)?,
            Some(why) => self.board.give_back(lease.token, why, self.pause())?,
        };
        Ok(Some(lease))
    }

    pub(super) fn all_done(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.leases.keys().copied().collect();
        for number in numbers {
            self.settle(number, None)?;
        }
        Ok(())
    }

    /// For others at once. Whom the database does not hear, waits until they are over.
    pub(super) fn give_all_back(&mut self, why: &str) {
        for lease in std::mem::take(&mut self.leases).into_values() {
            let _over_by_itself = self.board.give_back(lease.token, why, self.pause());
        }
    }
}
