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
    record: Record,
    is_read_only: bool,
    pub(super) changes: ChangeCounter,
}

impl AuditEntry {
    pub(super) fn new<B>(
        request: &Request<B>,
        client: SocketAddr,
        (token, export): (&str, &str),
        records: RecordWriter,
    ) -> Self {
        let method = request.method().as_str();
        let record = Record::Request {
            client,
            token: token.to_owned(),
            export: escape_for_log(export),
            method: escape_for_log(method),
            path: escape_for_log(request.uri().path()),
            destination: raw_destination(request),
            entries: 0,
            bytes: 0,
            status: None,
        };
        Self {
            records,
            record,
            is_read_only: READ_ONLY.contains(&method),
            changes: ChangeCounter::default(),
        }
    }

    /// Sets the destination, which is the one that the client sent until it is parsed.
    pub(super) fn set_destination(&mut self, url: String) {
        if let Record::Request { destination, .. } = &mut self.record {
            *destination = Some(url);
        }
    }

    /// Returns the response, and records its status.
    pub(super) fn finish(mut self, outcome: Outcome) -> HttpResponse {
        let response = outcome.unwrap_or_else(Into::into);
        if let Record::Request { status, .. } = &mut self.record {
            *status = Some(response.status().as_u16());
        }
        response
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        let changed = self.changes.0.entries.load(Relaxed);
        if let Record::Request { entries, bytes, .. } = &mut self.record {
            (*entries, *bytes) = (changed, self.changes.0.bytes.load(Relaxed));
        }
        if !self.is_read_only || changed > 0 {
            self.records.write(&self.record);
        }
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
