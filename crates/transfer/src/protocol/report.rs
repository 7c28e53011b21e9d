// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end of a copy tells its driver.

use super::{entry::Kind, measured::Measured, message::Outcome, sources::Sources, spread};
use longhaul_command::console::escaped;
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From an end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Shares of trees that were spread, which the sources are.
    Shares(Vec<spread::Share>),
    /// Where the sources are, before it is ready or listens.
    Sources(Sources),
    /// Has what it needs, and waits to hear of the meeting.
    Ready,
    Listening(u16),
    /// Where it shall listen, something else does: for good, or until the end of a conversation that broke is gone.
    Occupied(String),
    Progress(Progress),
    /// Something that could not be copied, or not wholly.
    Problem(String),
    /// Whether what was marked is there.
    Marked(bool),
    /// Things that a survey found.
    Found(Vec<Found>),
    /// An extent is done with: whether all of it is durable at the target, and if not, why not.
    Done {
        number: u64,
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
pub(crate) struct Found {
    pub(crate) source: u32,
    pub(crate) path: RelPath,
    pub(crate) kind: Kind,
    /// The blocks that are there, if it is a piece.
    pub(crate) held: Option<Vec<Range<u64>>>,
}

/// Something that would be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub(crate) action: Action,
    /// As the file system has it.
    pub(crate) path: Vec<u8>,
    /// Data that would be sent for it.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    Make,
    Change,
    Remove,
}

/// What a stream has carried, as its sender's TCP sees it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StreamFigures {
    /// Seconds from when it was first seen to when it was last seen.
    pub(crate) lasted_s: f64,
    pub(crate) acked_bytes: u64,
    pub(crate) sent_again_bytes: u64,
    /// The smoothed round trip at last.
    pub(crate) rtt_us: u32,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Entries that the source has found, and bytes in their files.
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    /// Whether these are all.
    pub(crate) scanned: bool,
    /// Entries that are done with: there already, made, of a kind that the target does not take, failed.
    pub(crate) same: u64,
    pub(crate) made: u64,
    pub(crate) left_out: u64,
    pub(crate) failed: u64,
    pub(crate) removed: u64,
    /// Bytes sent in this conversation, and those that are durable.
    pub(crate) sent: u64,
    pub(crate) durable: u64,
    /// Bytes sent a second time, because the stream that had them was slow.
    pub(crate) repeated: u64,
    /// Bytes that need not be sent, because they are at the target already.
    pub(crate) there: u64,
    /// What the end has measured of itself in this conversation.
    pub(crate) measured: Measured,
}

impl Report {
    /// The same report, with the texts of another host escaped: they are shown here, often on a terminal.
    pub(crate) fn escaped(mut self) -> Self {
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
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Same | Outcome::Newer => self.same += 1,
            Outcome::Made | Outcome::MadeWithout(_) => self.made += 1,
            Outcome::NotTaken => self.left_out += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }
}
