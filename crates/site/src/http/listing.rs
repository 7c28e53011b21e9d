// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings of directories: whole or refused, and not more at a time than memory is there for.

use super::{
    export::{
        files::{Entries, Files},
        meta::blocking,
    },
    request::target::{Rejection, Target},
    room::Place,
};
use dav_server::fs::{DavMetaData, FsError};
use hyper::StatusCode;
use std::time::Duration;
use tokio::time::timeout;

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lists the request's directory for the library; nothing if it is none.
///
/// # Errors
/// As [`entries`].
pub(super) async fn of(files: Files, target: &Target) -> Result<(Files, Option<Place>), Rejection> {
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
) -> Result<Option<(Entries, Place)>, Rejection> {
    let meta = files.look(target.path.clone()).await;
    if !meta.is_ok_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    let listed = timeout(PATIENCE, with_room(files, target)).await;
    listed.unwrap_or(Err((
        StatusCode::SERVICE_UNAVAILABLE,
        "too much is listed at the same time: try again",
    )))
}

/// Reads the directory, and again when there is room for what was in it: nobody waits with a listing, nor keeps others from
/// reading theirs.
async fn with_room(files: &Files, target: &Target) -> Result<Option<(Entries, Place)>, Rejection> {
    let (room, token) = (&files.access.room, &files.access.token);
    let mut place: Option<Place> = None;
    loop {
        let turn = room.turn(token).await;
        let Some(entries) = read(files, target).await? else {
            return Ok(None);
        };
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        place = match place.filter(|place| place.count >= count) {
            None => room.try_list(token, count),
            enough => enough,
        };
        if let Some(place) = place {
            return Ok(Some((entries, place)));
        }
        drop((entries, turn));
        place = room.list(token, count).await;
    }
}

/// What is in the directory; nothing if it is gone.
async fn read(files: &Files, target: &Target) -> Result<Option<Entries>, Rejection> {
    let (root, path) = (files.root.clone(), target.path.clone());
    match blocking(move || Entries::of(&root, path.as_ref())).await {
        Ok(entries) => Ok(Some(entries)),
        Err(FsError::NotFound) => Ok(None),
        Err(FsError::Forbidden) => Err((
            StatusCode::FORBIDDEN,
            "the site can't look at all that is in it",
        )),
        Err(FsError::TooLarge) => {
            let why = "a directory of more than 100,000 entries can't be listed";
            Err((StatusCode::INSUFFICIENT_STORAGE, why))
        }
        Err(FsError::PathTooLong) => {
            let why = "what is in it has paths that are too long";
            Err((StatusCode::INSUFFICIENT_STORAGE, why))
        }
        Err(_) => {
            let why = "the site can't list it";
            Err((StatusCode::INTERNAL_SERVER_ERROR, why))
        }
    }
}
