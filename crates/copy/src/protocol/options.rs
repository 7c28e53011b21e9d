// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a copy, as the coordinator sends them to both endpoints.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::tree::{
    filter::{Filter, Rule},
    origin::SourceId,
    preserve::Preserve,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Options of a copy. Both endpoints receive the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Options {
    /// Number of data connections.
    pub streams: Streams,
    /// Pacing of their packets.
    pub pacing: Pacing,
    /// Congestion control of their sockets; `None` leaves the choice to the copy.
    pub congestion_control: Option<String>,
    /// Transport protocol of the data connections.
    pub transport: Transport,
    /// Whether data is encrypted. Control messages always are.
    pub encrypt: Switch,
    /// Whether data is verified by its hash.
    pub hash: Switch,
    /// Rate limit, in bits per second.
    pub limit: Option<u64>,
    /// Time without an answer after which a connection is given up, in milliseconds.
    pub idle_timeout_ms: u32,
    /// Only report the actions, and perform none.
    pub dry_run: bool,
    /// Compare files by contents, not by size and modification time.
    pub checksum: bool,
    /// Remove entries at the target that no source has.
    pub delete: bool,
    /// Most entries that may be removed.
    pub max_delete: DeletionLimit,
    /// Time for which removed entries are kept, in seconds; `None` removes them at once.
    pub trash_s: Option<u64>,
    /// Whether a changed file is sent whole. Otherwise the blocks that the target has already are not sent.
    pub whole_files: bool,
    /// Leave files that are newer at the target.
    pub update: bool,
    /// Difference up to which modification times are the same, in seconds; `None` is that of the target's file system.
    pub modify_window_s: Option<u32>,
    /// Stay on the file system of each source.
    pub one_file_system: bool,
    /// Whether further names of a file are copied as hard links; otherwise each is a file.
    pub hard_links: bool,
    /// Patterns of entries to copy or leave out. The last match decides.
    pub rules: Vec<Rule>,
    /// Metadata and special files that the target preserves.
    pub preserve: Preserve,
    /// Whether each source goes below the target under its own name: for several sources, or for an existing directory as
    /// target.
    pub into_directory: bool,
    /// Identifier of this command's sources. A later run finds the directory that an earlier run with this identifier named.
    pub origin: SourceId,
}

impl Options {
    /// Returns the filter of the patterns and of the file systems.
    pub fn filter(&self) -> Result<Filter> {
        let filter = Filter::new(&self.rules).map_err(Refusal::usage)?;
        Ok(filter.with_one_file_system(self.one_file_system))
    }

    /// Returns the time without an answer after which a connection is given up.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms.into())
    }

    /// Returns the fixed number of streams; `None` if the copy adapts it.
    pub fn streams_fixed(&self) -> Option<u16> {
        match self.streams {
            Streams::Exactly(count) => Some(count),
            Streams::Auto => None,
        }
    }
}

/// Most entries that may be removed from the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionLimit {
    /// Any number, unless it looks like an accident.
    NoAccident,
    /// A number of entries.
    Count(u64),
    /// A share of the entries in the copied directories, in percent.
    Percent(u8),
}

/// Number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// The copy adapts the number.
    Auto,
    /// A fixed number.
    Exactly(u16),
}

/// Pacing of the packets of all streams together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pacing {
    /// TCP paces each stream by its window and round-trip time (net/ipv4/tcp_input.c, `tcp_update_pacing_rate`).
    Auto,
    /// No pacing: packets leave as soon as the window allows.
    Off,
    /// Pacing at this total rate in bits per second, divided equally between the streams.
    Rate(u64),
}

/// Transport protocol of the data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP, with TLS if data is encrypted.
    Tcp,
    /// UDT, always with TLS.
    Udt,
}

/// Setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}
