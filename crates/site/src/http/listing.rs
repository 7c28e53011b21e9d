// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings of directories: whole or refused, and not more at a time than memory is there for.

use super::{
    export::{
        files::{Entries, Files},
        meta::blocking,
    },
    request::target::{Target, Wrong},
    room::{LISTED_MAX, Place},
};
use dav_server::fs::{DavMetaData, FsError};
use hyper::StatusCode;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lists the request's directory for the library; nothing if it is none.
///
/// # Errors
/// As [`entries`].
pub(super) async fn of(files: Files, target: &Target) -> Result<(Files, Option<Place>), Wrong> {
    Ok(match entries(&files, target).await? {
        Some((entries, place)) => (files.listing(entries), Some(place)),
        None => (files, None),
    })
}

/// What is in the request's directory; nothing if it is none.
///
/// # Errors
/// It can't be listed, or too much is listed already.
pub(super) async fn entries(
    files: &Files,
    target: &Target,
) -> Result<Option<(Entries, Place)>, Wrong> {
    let meta = files.look(target.path.clone()).await;
    if !meta.is_ok_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    let room = files.access.room.clone();
    let busy = (
        StatusCode::SERVICE_UNAVAILABLE,
        "too much is listed at the same time: try again",
    );
    let reads = timeout(PATIENCE, room.read.acquire()).await;
    let reads = reads.ok().and_then(Result::ok).ok_or(busy)?;
    let (root, path) = (files.root.clone(), target.path.clone());
    let entries = match blocking(move || Entries::of(&root, path.as_ref())).await {
        Ok(entries) => entries,
        Err(FsError::NotFound) => return Ok(None),
        Err(FsError::Forbidden) => {
            return Err((
                StatusCode::FORBIDDEN,
                "the site can't look at all that is in it",
            ));
        }
        Err(FsError::TooLarge) => {
            let why = "a directory of more than 100,000 entries can't be listed";
            return Err((StatusCode::INSUFFICIENT_STORAGE, why));
        }
        Err(FsError::PathTooLong) => {
            let why = "what is in it has paths that are too long";
            return Err((StatusCode::INSUFFICIENT_STORAGE, why));
        }
        Err(_) => {
            let why = "the site can't list it";
            return Err((StatusCode::INTERNAL_SERVER_ERROR, why));
        }
    };
    let count = u32::try_from(entries.len()).unwrap_or(LISTED_MAX);
    let place = timeout(
        PATIENCE,
        room.listed.acquire_many_owned(count.min(LISTED_MAX)),
    )
    .await;
    let place = place.ok().and_then(Result::ok).ok_or(busy)?;
    drop(reads);
    Ok(Some((entries, Place(Arc::new(place)))))
}
