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
use hyper::{Method, Request, StatusCode};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a request may be answered by a listing.
pub(super) fn is_asked<B>(request: &Request<B>) -> bool {
    match request.method().as_str() {
        "PROPFIND" => request
            .headers()
            .get("depth")
            .is_none_or(|depth| depth != "0"),
        _ => [Method::GET, Method::HEAD].contains(request.method()),
    }
}

/// Lists the request's directory for the library; nothing if it is none.
///
/// # Errors
/// It can't be listed, or too much is listed already.
pub(super) async fn of(files: Files, target: &Target) -> Result<(Files, Option<Place>), Wrong> {
    let meta = files.look(target.path.clone()).await;
    if !meta.is_ok_and(|meta| meta.is_dir()) {
        return Ok((files, None));
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
        Err(FsError::NotFound) => return Ok((files, None)),
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
    Ok((files.listing(entries), Some(Place(Arc::new(place)))))
}
