// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of an endpoint to the coordinator.

use super::{message::Outcome, sources::Sources};
use longhaul_command::console::escape;
use longhaul_scheduling::Metrics;
use longhaul_store::{entry::Kind, path::RelPath, tree::spread::TreeShare};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Report of an endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Shares of distributed trees that the sources are.
    Shares(Vec<TreeShare>),
    /// Locations of the sources. Sent before `Ready` or `Listening`.
    Sources(Sources),
    /// The endpoint is ready, and waits for the instruction to listen or connect.
    Ready,
    /// The endpoint listens on this port.
    Listening(u16),
    /// All allowed ports are in use: permanently, or until the endpoint of a broken session has exited.
    PortsInUse(String),
    /// Progress, a few times per second.
    Progress(Progress),
    /// An entry could not be copied, or not completely.
    Problem(String),
    /// Whether the probe file is visible.
    ProbeVisible(bool),
    /// Entries that a scan found.
    Found(Vec<FoundEntry>),
    /// An extent is finished.
    ExtentDone {
        /// Number that the coordinator gave the extent.
        number: u64,
        /// Reason of a failure; `None` if the whole extent is durable at the target.
        failed: Option<String>,
    },
    /// Action that a copy would perform at the target, in a dry run.
    Planned(PlannedAction),
    /// Why the copy would be refused, in a dry run. The planned actions are those of the copy without the refusal.
    PlanRefused(String),
    /// Statistics of each stream, from the source at the end of the session.
    Streams(Vec<StreamStats>),
    /// The endpoint has finished. Everything that could be copied is copied.
    Finished(Progress),
    /// The session broke. The next one resumes the copy.
    Broken(String),
    /// The endpoint refuses for a reason that a retry does not change.
    Refused(String),
}

/// Entry that a scan found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundEntry {
    /// Index of the source, from 0.
    pub source: u32,
    /// Path in the copy.
    pub path: RelPath,
    /// Kind of the entry.
    pub kind: Kind,
    /// Blocks that the host has, if the entry is a piece of a file.
    pub piece_blocks: Option<Vec<Range<u64>>>,
}

/// Action that a copy would perform.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedAction {
    /// Kind of action.
    pub action: Action,
    /// Path in the file system.
    pub path: Vec<u8>,
    /// Data that would be sent, in bytes.
    pub bytes: u64,
}

/// Kind of action on an entry at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Creates an entry that does not exist.
    Create,
    /// Changes an entry that differs.
    Change,
    /// Removes an entry that no source has.
    Remove,
}

/// Statistics of one stream, from the sender's TCP.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamStats {
    /// Seconds between the first and the last measurement of the stream.
    pub duration_s: f64,
    /// Bytes that the receiver has acknowledged.
    pub acked_bytes: u64,
    /// Bytes that TCP retransmitted.
    pub retransmitted_bytes: u64,
    /// Smoothed round-trip time at the last measurement.
    pub rtt_us: u32,
}

/// Progress of a session, as one endpoint counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Entries that the source has found.
    pub entries: u64,
    /// Bytes in the files that the source has found.
    pub bytes: u64,
    /// Whether the scan is complete.
    pub scanned: bool,
    /// Entries that the target had already.
    pub unchanged: u64,
    /// Entries created or changed.
    pub copied: u64,
    /// Entries of a kind that the options leave out.
    pub skipped: u64,
    /// Entries not copied, or not completely.
    pub failed: u64,
    /// Entries that were removed at the source before they were read.
    pub vanished: u64,
    /// Entries removed at the target.
    pub removed: u64,
    /// Bytes sent in this session.
    pub sent: u64,
    /// Bytes that are durable at the target.
    pub durable: u64,
    /// Bytes sent a second time on another stream, because their first stream was slow.
    pub duplicate: u64,
    /// Bytes that need not be sent, because the target has them already.
    pub present: u64,
    /// Measurements of the endpoint in this session.
    pub measured: Metrics,
}

impl Report {
    /// Returns the report with escaped texts. The texts come from another host and may be shown on a terminal.
    pub fn escape_texts(mut self) -> Self {
        match &mut self {
            Self::PortsInUse(text)
            | Self::Problem(text)
            | Self::Broken(text)
            | Self::Refused(text)
            | Self::PlanRefused(text)
            | Self::ExtentDone {
                failed: Some(text), ..
            } => *text = escape(text),
            _ => {}
        }
        self
    }
}

impl Progress {
    /// Counts the result of an entry.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Unchanged | Outcome::Newer => self.unchanged += 1,
            Outcome::Copied | Outcome::CopiedWithout(_) => self.copied += 1,
            Outcome::Skipped => self.skipped += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }
}
