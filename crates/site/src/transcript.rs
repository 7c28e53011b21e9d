// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transcript of a copy, read from the bytes between the coordinator and the endpoint: the request, the progress and
//! the outcome.

use super::record::Record;
use longhaul_copy::protocol::{
    control::{Begin, Role},
    hello::GREETING,
    message,
    report::{Progress, Report},
};
use serde::de::DeserializeOwned;

/// Longest message that is parsed, in bytes. A transcript costs twice as much.
const MESSAGE_LEN_MAX: usize = 16 << 10;

/// Reason given for a longer request, unless the endpoint reports another.
const LONG_REQUEST: &str = "its paths are longer than 16 KiB, and not shown";

/// Most paths that are kept, and bytes of each.
const PATHS_MAX: usize = 8;
const PATH_LEN_MAX: usize = 4096;

/// Outcome of a connection that ended without a report.
const INTERRUPTED: &str = "interrupted";

/// Transcript of one endpoint's messages.
#[derive(Debug, Default)]
pub(crate) struct CopyTranscript {
    from_coordinator: Frames,
    from_endpoint: Frames,
    /// Whether the endpoint's first message has passed. It is not a report.
    greeting_seen: bool,
    /// Whether the coordinator's first message has passed. Later messages are ignored.
    request_seen: bool,
    role: Option<Role>,
    paths: Vec<String>,
    progress: Progress,
    /// Whether the endpoint has done everything that was possible, has refused, or has failed.
    outcome: &'static str,
    reason: Option<String>,
}

impl CopyTranscript {
    pub(crate) fn new() -> Self {
        let from_endpoint = Frames {
            skip: GREETING.len(),
            ..Frames::default()
        };
        Self {
            from_endpoint,
            outcome: INTERRUPTED,
            ..Self::default()
        }
    }

    /// Observes bytes of the coordinator. Only its first message counts.
    pub(crate) fn observe_coordinator(&mut self, bytes: &[u8]) {
        let Self {
            from_coordinator,
            request_seen,
            role,
            paths,
            reason,
            ..
        } = self;
        if *request_seen {
            return;
        }
        from_coordinator.push(bytes, |frame| {
            if std::mem::replace(request_seen, true) {
                return;
            }
            if frame.is_none() {
                *reason = Some(LONG_REQUEST.to_owned());
            }
            if let Some(begin) = parse::<Begin>(frame) {
                *role = Some(begin.role);
                *paths = truncate_paths(&begin.paths);
            }
        });
    }

    /// Observes bytes of the endpoint.
    pub(crate) fn observe_endpoint(&mut self, bytes: &[u8]) {
        let Self {
            from_endpoint,
            greeting_seen,
            progress,
            outcome,
            reason,
            ..
        } = self;
        from_endpoint.push(bytes, |frame| match parse(frame) {
            _ if !std::mem::replace(greeting_seen, true) => {}
            Some(Report::Progress(now)) => *progress = now,
            Some(Report::Finished(now)) => (*progress, *outcome) = (now, "completed"),
            Some(Report::Refused(text)) => (*outcome, *reason) = ("refused", Some(text)),
            Some(Report::Broken(text) | Report::PortsInUse(text)) => {
                (*outcome, *reason) = ("failed", Some(text));
            }
            _ => {}
        });
    }

    /// Returns the record of the request and its outcome.
    pub(crate) fn to_record(&self, copy: u64) -> Record {
        Record::CopyEnded {
            copy,
            role: self.role.map(|role| role.name().to_owned()),
            paths: self.paths.clone(),
            copied: self.progress.copied,
            removed: self.progress.removed,
            failed: self.progress.failed,
            bytes: self.bytes(),
            outcome: self.outcome.to_owned(),
            reason: self.reason.clone(),
        }
    }

    /// Returns the bytes sent by a source, or durable at a target.
    fn bytes(&self) -> u64 {
        match self.role {
            Some(Role::Target) => self.progress.durable,
            _ => self.progress.sent,
        }
    }
}

/// Returns the first paths, each truncated to what is kept.
fn truncate_paths(paths: &[Vec<u8>]) -> Vec<String> {
    let truncate = |path: &Vec<u8>| {
        let path = &path[..path.len().min(PATH_LEN_MAX)];
        String::from_utf8_lossy(path).into_owned()
    };
    paths.iter().take(PATHS_MAX).map(truncate).collect()
}

/// Parses a message. `None` is one that is too long for that.
fn parse<M: DeserializeOwned>(message: Option<&[u8]>) -> Option<M> {
    message::read(&mut message?).ok().flatten()
}

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes before the next message.
    skip: usize,
    buffer: Vec<u8>,
}

impl Frames {
    /// Passes each message to `emit`; `None` for one that is too long to be parsed.
    fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Option<&[u8]>)) {
        while !bytes.is_empty() {
            let passed = self.skip.min(bytes.len());
            self.skip -= passed;
            bytes = &bytes[passed..];
            bytes = self.fill(4, bytes);
            let Some(&length) = self.buffer.first_chunk() else {
                return;
            };
            let length = u32::from_be_bytes(length) as usize;
            if length > MESSAGE_LEN_MAX {
                self.skip = length;
                self.buffer.clear();
                emit(None);
                continue;
            }
            bytes = self.fill(4 + length, bytes);
            if self.buffer.len() == 4 + length {
                emit(Some(&self.buffer));
                self.buffer.clear();
            }
        }
    }

    /// Fills the buffer up to a length. Returns the remaining bytes.
    fn fill<'b>(&mut self, length: usize, bytes: &'b [u8]) -> &'b [u8] {
        let missing = length.saturating_sub(self.buffer.len()).min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..missing]);
        &bytes[missing..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_copy::protocol::{
        control::{Rendezvous, Task},
        hello::Hello,
        options::{DeletionLimit, Options, Pacing, Streams, Switch, Transport},
        sources::Sources,
    };
    use longhaul_store::tree::preserve::Preserve;

    fn endpoint_bytes(reports: &[Report]) -> Vec<u8> {
        let mut bytes = GREETING.to_vec();
        message::write(&mut bytes, &Hello::new(b"certificate", None)).unwrap();
        for report in reports {
            message::write(&mut bytes, report).unwrap();
        }
        bytes
    }

    #[test]
    fn parses_reports_across_any_chunks() {
        let progress = |made, durable| Progress {
            copied: made,
            durable,
            ..Progress::default()
        };
        let bytes = endpoint_bytes(&[
            Report::Ready,
            Report::Progress(progress(1, 10)),
            // Longer than a message that is parsed.
            Report::Problem("x".repeat(2 * MESSAGE_LEN_MAX)),
            Report::Finished(progress(7, 70)),
        ]);
        for piece in [1, 3, 7, 1000, bytes.len()] {
            let mut account = CopyTranscript::new();
            account.role = Some(Role::Target);
            for part in bytes.chunks(piece) {
                account.observe_endpoint(part);
            }
            assert_eq!(account.outcome, "completed", "{piece}");
            assert_eq!((account.progress.copied, account.bytes()), (7, 70));
        }
    }

    fn begin(path: &[u8]) -> Begin {
        Begin {
            role: Role::Source,
            paths: vec![path.to_vec()],
            options: Options {
                streams: Streams::Auto,
                pacing: Pacing::Auto,
                congestion_control: None,
                transport: Transport::Tcp,
                encrypt: Switch::On,
                hash: Switch::On,
                limit: None,
                idle_timeout_ms: 60_000,
                dry_run: false,
                checksum: false,
                delete: false,
                max_delete: DeletionLimit::NoAccident,
                trash_s: None,
                whole_files: false,
                update: false,
                modify_window_s: None,
                one_file_system: false,
                hard_links: true,
                rules: Vec::new(),
                preserve: Preserve::untrusted(),
                into_directory: false,
                origin: [0; 32],
            },
            peer_certificate: Vec::new(),
            rendezvous: Rendezvous::Wait,
            task: Task::Whole,
            sources: Sources::default(),
            shares: Vec::new(),
        }
    }

    fn coordinator_bytes(path: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        message::write(&mut bytes, &begin(path)).unwrap();
        bytes
    }

    /// Later messages could contain anything that a client wants in the record.
    #[test]
    fn only_the_first_message_is_the_request() {
        let (good, long) = (
            coordinator_bytes(b"data/true"),
            coordinator_bytes(&[b'x'; MESSAGE_LEN_MAX]),
        );
        let unreadable = [0, 0, 0, 1, 0xff];
        for (first, paths, reason) in [
            (&good[..], &["data/true"][..], None),
            (&long, &[], Some(LONG_REQUEST)),
            (&unreadable, &[], None),
        ] {
            let bytes = [first, &coordinator_bytes(b"data/forged")].concat();
            for piece in [1, 1000, bytes.len()] {
                let mut account = CopyTranscript::new();
                for part in bytes.chunks(piece) {
                    account.observe_coordinator(part);
                }
                assert_eq!(account.paths, paths);
                assert_eq!(account.role.is_some(), !paths.is_empty());
                assert_eq!(account.reason.as_deref(), reason);
            }
        }
    }

    #[test]
    fn outcome_is_cut_off_until_reported() {
        let mut account = CopyTranscript::new();
        account.observe_coordinator(&[0, 0, 0, 3, 9, 9, 9]);
        account.observe_coordinator(&[0xff; 100]);
        assert_eq!((account.role, account.outcome), (None, INTERRUPTED));
        account.observe_endpoint(&endpoint_bytes(&[Report::Refused("reason".to_owned())]));
        assert_eq!(account.outcome, "refused");
        assert_eq!(account.reason.as_deref(), Some("reason"));
        assert!(account.from_endpoint.buffer.capacity() <= 2 * MESSAGE_LEN_MAX);
    }
}
