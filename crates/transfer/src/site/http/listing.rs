// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings of directories: whole or refused, and not more at a time than memory is there for.

use super::{
    Answer,
    files::{Entries, Files, Meta, blocking},
    target::{Target, Wrong},
};
use bytes::Bytes;
use dav_server::{body::Body, fs::FsError};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, SizeHint},
};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Entries that all answers of this process list together, at most. Each costs some 300 bytes until its client has it.
const LISTED_MAX: u32 = 400_000;

/// Directories that are read at the same time: each costs up to 10 MB more while it is.
const READ_MAX: usize = 4;

/// How long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is left of both.
#[derive(Debug, Clone)]
pub(super) struct Room {
    listed: Arc<Semaphore>,
    read: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            listed: Arc::new(Semaphore::new(LISTED_MAX as usize)),
            read: Arc::new(Semaphore::new(READ_MAX)),
        }
    }
}

/// The room that a listing takes.
#[derive(Debug, Clone)]
pub(super) struct Place(
    #[expect(dead_code, reason = "it holds by being there")] Arc<OwnedSemaphorePermit>,
);

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
    let (root, path) = (files.root().clone(), target.path.clone());
    let meta = blocking(move || Meta::shown(&root, path.as_ref())).await;
    if !meta.is_ok_and(|meta| meta.is_directory()) {
        return Ok((files, None));
    }
    let room = files.room().clone();
    let busy = (
        StatusCode::SERVICE_UNAVAILABLE,
        "too much is listed at the same time: try again",
    );
    let reads = timeout(PATIENCE, room.read.acquire()).await;
    let reads = reads.ok().and_then(Result::ok).ok_or(busy)?;
    let (root, path) = (files.root().clone(), target.path.clone());
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

/// An answer's body, and the room that it takes until all of it is sent.
pub(super) struct Held {
    body: Body,
    _place: Option<Place>,
}

impl Held {
    /// The answer with what holds its place.
    pub(super) fn of(answer: Answer) -> Response<Self> {
        let (mut head, body) = answer.into_parts();
        let place = head.extensions.remove();
        let held = Self {
            body,
            _place: place,
        };
        Response::from_parts(head, held)
    }
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
