// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings of directories. They are complete or refused, and bounded by a memory budget.

use super::{
    budget::Reservation,
    export::{
        files::{Entries, Files},
        meta::blocking,
    },
    request::target::{Rejection, Target},
};
use dav_server::fs::{DavMetaData, FsError};
use hyper::StatusCode;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time that a request waits for others.
const LISTING_TIMEOUT: Duration = Duration::from_secs(20);

/// Most entries on a page for browsers. dav-server holds all of them, with some 300 bytes each.
const PAGE_ENTRIES_MAX: usize = 100_000;

/// Entries of a listing with properties that take as much memory as one on a page.
const PAGE_ENTRY_COST: usize = 10;

/// Lists the request's directory for a page of dav-server. Changes nothing if the target is not a directory.
///
/// # Errors
/// See [`entries`].
pub(super) async fn list_target(
    files: Files,
    target: &Target,
) -> Result<(Files, Option<Reservation>), Rejection> {
    Ok(match list(&files, target, PAGE_ENTRY_COST).await? {
        Some((entries, reservation)) => (files.with_listing(entries), Some(reservation)),
        None => (files, None),
    })
}

/// Returns the contents of the request's directory; `None` if it is not a directory.
///
/// # Errors
/// The directory can't be listed, or too many entries are listed already.
pub(super) async fn entries(
    files: &Files,
    target: &Target,
) -> Result<Option<(Entries, Reservation)>, Rejection> {
    list(files, target, 1).await
}

/// Lists the request's directory. Reserves `cost` for each entry.
async fn list(
    files: &Files,
    target: &Target,
    cost: usize,
) -> Result<Option<(Entries, Reservation)>, Rejection> {
    let meta = files.stat(target.path.clone()).await;
    if !meta.is_ok_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    let listed = timeout(LISTING_TIMEOUT, read_within_budget(files, target, cost)).await;
    listed.unwrap_or(Err((
        StatusCode::SERVICE_UNAVAILABLE,
        "too many entries are listed at the same time: try again",
    )))
}

/// Reads the directory, and again when the budget has room for its entries. A waiting request holds no listing, and
/// blocks no other read.
async fn read_within_budget(
    files: &Files,
    target: &Target,
    cost: usize,
) -> Result<Option<(Entries, Reservation)>, Rejection> {
    let (budget, token) = (&files.access.budget, &files.access.token);
    let mut reservation: Option<Reservation> = None;
    loop {
        let permit = budget.acquire_read(token).await;
        let Some((entries, count)) = read(files, target).await? else {
            return Ok(None);
        };
        if cost == PAGE_ENTRY_COST && count > PAGE_ENTRIES_MAX {
            let why = "a page has no more than 100,000 entries: PROPFIND lists more";
            return Err((StatusCode::INSUFFICIENT_STORAGE, why));
        }
        let count = u32::try_from(count * cost).unwrap_or(u32::MAX);
        reservation = match reservation.filter(|reservation| reservation.count >= count) {
            None => budget.try_reserve(token, count),
            enough => enough,
        };
        if let Some(reservation) = reservation {
            return Ok(Some((entries, reservation)));
        }
        drop((entries, permit));
        reservation = budget.reserve(token, count).await;
    }
}

/// Returns the contents of the directory; `None` if it was removed.
async fn read(files: &Files, target: &Target) -> Result<Option<(Entries, usize)>, Rejection> {
    let (root, path) = (files.root.clone(), target.path.clone());
    match blocking(move || Entries::of(&root, path.as_ref())).await {
        Ok(entries) => Ok(Some(entries)),
        Err(FsError::NotFound) => Ok(None),
        Err(FsError::Forbidden) => Err((StatusCode::FORBIDDEN, "the site can't read all of it")),
        Err(FsError::TooLarge) => {
            let why = "a directory of more than 1,000,000 entries can't be listed";
            Err((StatusCode::INSUFFICIENT_STORAGE, why))
        }
        Err(FsError::PathTooLong) => {
            let why = "paths in it are too long";
            Err((StatusCode::INSUFFICIENT_STORAGE, why))
        }
        Err(_) => {
            let why = "the site can't list it";
            Err((StatusCode::INTERNAL_SERVER_ERROR, why))
        }
    }
}
