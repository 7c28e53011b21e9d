// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end of a copy tells its driver.

use super::{entry::Kind, measured::Measured, message::Outcome, sources::Sources, spread};
use longhaul_command::console::escaped;
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From an end.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Shares of trees that were spread, which the sources are.
    Shares(Vec<spread::Share>),
    /// Where the sources are, before it is ready or listens.
    Sources(Sources),
    /// Has what it needs, and waits to hear of the meeting.
    Ready,
    /// Listens on this port.
    Listening(u16),
    /// Where it shall listen, something else does: for good, or until the end of a conversation that broke is gone.
    Occupied(String),
    /// How far it is, some times a second.
    Progress(Progress),
    /// Something that could not be copied, or not wholly.
    Problem(String),
    /// Whether what was marked is there.
    Marked(bool),
    /// Things that a survey found.
    Found(Vec<Found>),
    /// An extent is done with: whether all of it is durable at the target, and if not, why not.
    Done {
        /// The driver's.
        number: u64,
        /// None: all of it is durable.
        failed: Option<String>,
    },
    /// With a dry run, what would be done at the target.
    Planned(Planned),
    /// What each stream carried, from the source at its end.
    Streams(Vec<StreamFigures>),
    /// All that could be done is done.
    Over(Progress),
    /// The conversation broke; another one goes on where it was.
    Broken(String),
    /// What no repetition mends.
    Refused(String),
}

/// Something that there is to copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// Which source it is of, from 0.
    pub source: u32,
    /// As it is called in the copy.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// The blocks that are there, if it is a piece.
    pub held: Option<Vec<Range<u64>>>,
}

/// Something that would be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// What would be done.
    pub action: Action,
    /// As the file system has it.
    pub path: Vec<u8>,
    /// Data that would be sent for it.
    pub bytes: u64,
}

/// What is done to an entry at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// It is not there.
    Make,
    /// It is there, and differs.
    Change,
    /// No source has it.
    Remove,
}

/// What a stream has carried, as its sender's TCP sees it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamFigures {
    /// Seconds from when it was first seen to when it was last seen.
    pub lasted_s: f64,
    /// Bytes that the receiver has acknowledged.
    pub acked_bytes: u64,
    /// Bytes that TCP sent again.
    pub sent_again_bytes: u64,
    /// The smoothed round trip at last.
    pub rtt_us: u32,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Entries that the source has found.
    pub entries: u64,
    /// Bytes in the files that the source has found.
    pub bytes: u64,
    /// Whether these are all.
    pub scanned: bool,
    /// Entries that were at the target already.
    pub same: u64,
    /// Made or changed.
    pub made: u64,
    /// Of a kind that the target does not take.
    pub left_out: u64,
    /// Not copied, or not wholly.
    pub failed: u64,
    /// Removed at the target.
    pub removed: u64,
    /// Bytes sent in this conversation.
    pub sent: u64,
    /// Bytes that are durable at the target.
    pub durable: u64,
    /// Bytes sent a second time, because the stream that had them was slow.
    pub repeated: u64,
    /// Bytes that need not be sent, because they are at the target already.
    pub there: u64,
    /// What the end has measured of itself in this conversation.
    pub measured: Measured,
}

impl Report {
    /// The same report, with the texts of another host escaped: they are shown here, often on a terminal.
    pub fn escaped(mut self) -> Self {
        match &mut self {
            Self::Occupied(text)
            | Self::Problem(text)
            | Self::Broken(text)
            | Self::Refused(text)
            | Self::Done {
                failed: Some(text), ..
            } => *text = escaped(text),
            _ => {}
        }
        self
    }
}

impl Progress {
    /// An entry is done with.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Same | Outcome::Newer => self.same += 1,
            Outcome::Made | Outcome::MadeWithout(_) => self.made += 1,
            Outcome::NotTaken => self.left_out += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }
}
