// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings of directories. They are complete or refused, and bounded by a memory budget.

use super::{
    budget::{Permits, Use},
    export::files::{Entries, Files},
    export::meta::Meta,
    response::{Outcome, Rejection, blocking},
};
use futures_util::FutureExt as _;
use longhaul_store::path::RelPath;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time that a request waits for others.
const LISTING_TIMEOUT: Duration = Duration::from_secs(20);

const BUSY: Rejection = Rejection(
    503,
    "too many entries are listed at the same time: try again",
);

/// Contents of a directory. They hold a part of the budget until they are dropped.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) entries: Entries,
    pub(super) count: usize,
    reservation: Permits,
}

impl Listing {
    /// Reads a directory, and again when the budget has room for its entries. A waiting request holds no listing, and
    /// blocks no other read.
    ///
    /// # Errors
    /// The directory can't be listed, or too many entries are listed already.
    pub(super) async fn read(files: &Files, directory: Option<&RelPath>) -> Outcome<Self> {
        let listed = timeout(LISTING_TIMEOUT, Self::read_within_budget(files, directory)).await;
        listed.unwrap_or(Err(BUSY))
    }

    async fn read_within_budget(files: &Files, directory: Option<&RelPath>) -> Outcome<Self> {
        let (budget, token) = (&files.access.budget, &files.access.token);
        let mut reserved: Option<Permits> = None;
        loop {
            let permit = budget.acquire(Use::Read, token, 1).await;
            let (of, path) = (files.clone(), directory.cloned());
            let (entries, count) = blocking(move || Entries::of(&of, path.as_ref())).await?;
            let wanted = u32::try_from(count).unwrap_or(u32::MAX);
            let enough = reserved.take().filter(|reserved| reserved.count >= wanted);
            // What the budget has now.
            let at_once = || {
                budget
                    .acquire(Use::Entries, token, wanted)
                    .now_or_never()
                    .flatten()
            };
            if let Some(reservation) = enough.or_else(at_once) {
                return Ok(Self {
                    entries,
                    count,
                    reservation,
                });
            }
            drop((entries, permit));
            reserved = budget.acquire(Use::Entries, token, wanted).await;
        }
    }

    /// Returns the entries, with the reservation.
    pub(super) fn into_entries(self) -> impl Iterator<Item = Outcome<(RelPath, Meta)>> + Send {
        let Self {
            entries,
            reservation,
            ..
        } = self;
        entries.inspect(move |_| {
            let _held = &reservation;
        })
    }
}
