// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that listings take: so much for all answers of this process, and each keeps its part until its client has it.

use super::answer::Answer;
use bytes::Bytes;
use dav_server::body::Body;
use hyper::{
    Response,
    body::{Frame, SizeHint},
};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
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
