// SPDX-License-Identifier: MIT OR Apache-2.0
//! Audit log: a record for each request that can change something, with client, counts and status.

use super::response::{HttpResponse, Outcome};
use crate::{record::Record, record_writer::RecordWriter};
use hyper::Request;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Methods that change nothing. They are not logged, unless a LOCK creates a file.
const READ_ONLY: [&str; 6] = ["GET", "HEAD", "OPTIONS", "PROPFIND", "LOCK", "UNLOCK"];

/// Longest path or method in a record, in bytes. Longer ones are truncated.
const SHOWN_LEN_MAX: usize = 4096;

/// Changes that a request has made so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeCounter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl ChangeCounter {
    /// Counts a name that was created, moved or removed.
    pub(crate) fn count_entry(&self) {
        self.0.entries.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Audit record of a request. It is written when the entry is dropped. Without a status then, the client closed the
/// connection early.
#[derive(Debug)]
pub(super) struct AuditEntry {
    records: RecordWriter,
    is_read_only: bool,
    client: SocketAddr,
    token: String,
    export: String,
    method: String,
    path: String,
    /// Destination as the client sent it, until it is parsed.
    pub(super) destination: Option<String>,
    pub(super) changes: ChangeCounter,
    status: Option<u16>,
}

impl AuditEntry {
    pub(super) fn new<B>(
        request: &Request<B>,
        client: SocketAddr,
        (token, export): (&str, &str),
        records: RecordWriter,
    ) -> Self {
        let method = request.method().as_str();
        Self {
            records,
            is_read_only: READ_ONLY.contains(&method),
            client,
            token: token.to_owned(),
            export: escape_for_log(export),
            method: escape_for_log(method),
            path: escape_for_log(request.uri().path()),
            destination: raw_destination(request),
            changes: ChangeCounter::default(),
            status: None,
        }
    }

    /// Returns the response, and records its status.
    pub(super) fn finish(mut self, outcome: Outcome) -> HttpResponse {
        let response = outcome.unwrap_or_else(Into::into);
        self.status = Some(response.status().as_u16());
        response
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if self.is_read_only && self.changes.0.entries.load(Relaxed) == 0 {
            return;
        }
        self.records.write(&Record::Request {
            client: self.client,
            token: std::mem::take(&mut self.token),
            export: std::mem::take(&mut self.export),
            method: std::mem::take(&mut self.method),
            path: std::mem::take(&mut self.path),
            destination: self.destination.take(),
            entries: self.changes.0.entries.load(Relaxed),
            bytes: self.changes.0.bytes.load(Relaxed),
            status: self.status,
        });
    }
}

/// Returns the Destination of a COPY or a MOVE as sent. It may be invalid.
fn raw_destination<B>(request: &Request<B>) -> Option<String> {
    let has_destination = ["COPY", "MOVE"].contains(&request.method().as_str());
    let raw = request.headers().get("destination");
    let raw = raw.filter(|_| has_destination)?.as_bytes();
    Some(escape_for_log(&String::from_utf8_lossy(raw)))
}

/// Escapes control characters and spaces, and truncates the text to the longest that a record may have.
fn escape_for_log(text: &str) -> String {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b' ');
    let mut escaped = utf8_percent_encode(text, ESCAPED).to_string();
    escaped.truncate(SHOWN_LEN_MAX);
    escaped
}
