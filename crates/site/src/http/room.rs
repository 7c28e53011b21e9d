// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that listings take: so much for all answers of this process, and each keeps its part until its client has it.

use super::answer::Answer;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Response, body::Body};
use std::{io, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Entries that all answers of this process list together, at most. Each costs some 300 bytes until its client has it.
pub(super) const LISTED_MAX: u32 = 400_000;

/// Directories that are read at the same time: each costs up to 10 MB more while it is.
const READ_MAX: usize = 4;

/// What is left of both.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pub(super) listed: Arc<Semaphore>,
    pub(super) read: Arc<Semaphore>,
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
    #[expect(dead_code, reason = "it holds by being there")] pub(super) Arc<OwnedSemaphorePermit>,
);

/// The answer, with a body that holds the room that it takes until all of it is sent.
pub(super) fn held(answer: Answer) -> Response<impl Body<Data = Bytes, Error = io::Error>> {
    let (mut head, body) = answer.into_parts();
    let place = head.extensions.remove::<Place>();
    // What a body's closure has goes with the body.
    let body = body.map_err(move |error| {
        let _held = &place;
        error
    });
    Response::from_parts(head, body)
}
