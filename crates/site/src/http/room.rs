// SPDX-License-Identifier: MIT OR Apache-2.0
//! What requests share. The memory that listings take: so much for all answers of this process, and each keeps its part until
//! its client has it. The threads that open exports. No token may have all of the one, and no export all of the other.

use super::answer::Answer;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Response, body::Body};
use parking_lot::Mutex;
use std::{collections::HashMap, io, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Entries that all answers of this process list together, at most, and those of one token. Each costs some 300 bytes until
/// its client has it.
const LISTED_MAX: usize = 400_000;
const LISTED_OF_ONE_MAX: usize = 200_000;

/// Directories that are read at the same time, and those for one token: each costs up to 10 MB more while it is.
const READ_MAX: usize = 4;
const READ_OF_ONE_MAX: usize = 2;

/// Requests that wait for an export's file system to open it, at most. It may be on a host that does not answer, and each of
/// them has a thread until it does: there are some 500 for all exports.
const OPENING_MAX: usize = 32;

/// What is left of both.
#[derive(Debug, Clone)]
struct Share {
    listed: Arc<Semaphore>,
    read: Arc<Semaphore>,
}

impl Share {
    fn new(listed: usize, read: usize) -> Self {
        Self {
            listed: Arc::new(Semaphore::new(listed)),
            read: Arc::new(Semaphore::new(read)),
        }
    }
}

/// What is left for all, and for each token.
#[derive(Debug, Clone)]
pub(super) struct Room {
    all: Share,
    of_tokens: Arc<Mutex<HashMap<String, Share>>>,
    of_exports: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            all: Share::new(LISTED_MAX, READ_MAX),
            of_tokens: Arc::default(),
            of_exports: Arc::default(),
        }
    }
}

/// Parts of two shares, a token's and that of all.
type Permits = [OwnedSemaphorePermit; 2];

impl Room {
    /// Waits until a directory may be read for a token.
    pub(super) async fn turn(&self, token: &str) -> Option<Permits> {
        let mine = self.of(token).read.acquire_owned().await.ok()?;
        let all = self.all.read.clone().acquire_owned().await.ok()?;
        Some([mine, all])
    }

    /// Room for a listing of a token, if there is some now.
    pub(super) fn try_list(&self, token: &str, count: u32) -> Option<Place> {
        let mine = self.of(token).listed.try_acquire_many_owned(count).ok()?;
        let all = self.all.listed.clone().try_acquire_many_owned(count).ok()?;
        Some(Place::of(count, [mine, all]))
    }

    /// Waits for it. Who waits for a token's share keeps nobody else from that of all.
    pub(super) async fn list(&self, token: &str, count: u32) -> Option<Place> {
        let mine = self.of(token).listed.acquire_many_owned(count).await.ok()?;
        let all = self
            .all
            .listed
            .clone()
            .acquire_many_owned(count)
            .await
            .ok()?;
        Some(Place::of(count, [mine, all]))
    }

    /// Waits until an export may be opened.
    pub(super) async fn opening(&self, export: &str) -> Option<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(OPENING_MAX));
        let left = {
            let mut of_exports = self.of_exports.lock();
            of_exports
                .entry(export.to_owned())
                .or_insert_with(new)
                .clone()
        };
        left.acquire_owned().await.ok()
    }

    fn of(&self, token: &str) -> Share {
        let mut of_tokens = self.of_tokens.lock();
        let new = || Share::new(LISTED_OF_ONE_MAX, READ_OF_ONE_MAX);
        let share = of_tokens.entry(token.to_owned()).or_insert_with(new);
        share.clone()
    }
}

/// The room that a listing takes.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Entries that it is for.
    pub(super) count: u32,
    #[expect(dead_code, reason = "it holds by being there")]
    permits: Arc<Permits>,
}

impl Place {
    fn of(count: u32, permits: Permits) -> Self {
        let permits = Arc::new(permits);
        Self { count, permits }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_token_takes_no_more_than_its_share() {
        let (room, moment) = (Room::default(), Duration::from_millis(10));
        let half = LISTED_OF_ONE_MAX as u32;
        let mine = room.try_list("me", half);
        assert!(mine.is_some() && room.try_list("me", 1).is_none());
        // Who waits for one's own share keeps nobody out.
        let waiting = room.list("me", half);
        assert!(timeout(moment, waiting).await.is_err());
        assert!(room.try_list("you", half).is_some());
        drop(mine);
        assert!(room.try_list("me", half).is_some());
        let turns = [room.turn("me").await, room.turn("me").await];
        assert!(timeout(moment, room.turn("me")).await.is_err());
        assert!(timeout(moment, room.turn("you")).await.is_ok());
        drop(turns);
        assert!(timeout(moment, room.turn("me")).await.is_ok());
    }
}
