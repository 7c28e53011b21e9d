// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line for each request that is to change something: who, what, how much, and what came of it.

use super::answer::Answer;
use crate::{lines::Records, record::Record};
use hyper::Request;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Methods that change nothing: there is no line for them, unless a LOCK makes a file.
const READ_ONLY: [&str; 6] = ["GET", "HEAD", "OPTIONS", "PROPFIND", "LOCK", "UNLOCK"];

/// Bytes of a path or a method in a line, at most. Longer ones are refused.
const SHOWN_LEN_MAX: usize = 4096;

/// What a request has done so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Changes {
    /// A name was made, moved or removed.
    pub(super) fn count_entry(&self) {
        self.0.entries.fetch_add(1, Relaxed);
    }

    pub(super) fn count_bytes(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Relaxed);
    }
}

/// The line, said when the request has its status, or when it is dropped without one: the client is gone.
#[derive(Debug)]
pub(super) struct Entry {
    records: Records,
    reads: bool,
    client: SocketAddr,
    token: String,
    export: String,
    method: String,
    path: String,
    /// As asked for, until it is read.
    pub(super) to: Option<String>,
    pub(super) changes: Changes,
    status: Option<u16>,
}

impl Entry {
    pub(super) fn of<B>(
        request: &Request<B>,
        client: SocketAddr,
        (token, export): (&str, &str),
        records: Records,
    ) -> Self {
        let method = request.method().as_str();
        Self {
            records,
            reads: READ_ONLY.contains(&method),
            client,
            token: token.to_owned(),
            export: shown(export),
            method: shown(method),
            path: shown(request.uri().path()),
            to: asked_destination(request),
            changes: Changes::default(),
            status: None,
        }
    }

    /// The request has this answer.
    pub(super) fn end(mut self, answer: Answer) -> Answer {
        self.status = Some(answer.status().as_u16());
        answer
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.reads && self.changes.0.entries.load(Relaxed) == 0 {
            return;
        }
        self.records.write(&Record::Request {
            client: self.client,
            token: std::mem::take(&mut self.token),
            export: std::mem::take(&mut self.export),
            method: std::mem::take(&mut self.method),
            path: std::mem::take(&mut self.path),
            to: self.to.take(),
            entries: self.changes.0.entries.load(Relaxed),
            bytes: self.changes.0.bytes.load(Relaxed),
            status: self.status,
        });
    }
}

/// Where a COPY or a MOVE is to go, as it says, which may be nowhere.
fn asked_destination<B>(request: &Request<B>) -> Option<String> {
    let changes_place = ["COPY", "MOVE"].contains(&request.method().as_str());
    let asked = request.headers().get("destination");
    let asked = asked.filter(|_| changes_place)?.as_bytes();
    Some(shown(&String::from_utf8_lossy(asked)))
}

/// Nothing that a terminal obeys, and not more than a line may have.
fn shown(text: &str) -> String {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b' ');
    let mut shown = utf8_percent_encode(text, ESCAPED).to_string();
    shown.truncate(SHOWN_LEN_MAX);
    shown
}
