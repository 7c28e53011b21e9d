// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a copy is to be made, as its driver tells both ends.

use super::preserve::Preserve;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::tree::{
    filter::{self, Filter},
    origin::Origin,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a copy is done; both ends get the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Options {
    /// How many connections carry data.
    pub streams: Streams,
    /// How their packets are spaced.
    pub pace: Pace,
    /// The congestion control of their sockets; none leaves the choice to the copy.
    pub congestion_control: Option<String>,
    /// What they go over.
    pub transport: Transport,
    /// Whether data is encrypted. Orders always are.
    pub encrypt: Switch,
    /// Whether the data is verified by its hash.
    pub hash: Switch,
    /// Bits a second.
    pub limit: Option<u64>,
    /// Milliseconds.
    pub silence: u32,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Compare files by their content, and not by size and time of change.
    pub checksum: bool,
    /// Remove at the target what no source has.
    pub delete: bool,
    /// Leave alone files that are newer at the target.
    pub update: bool,
    /// Stay on the file system of each source.
    pub one_file_system: bool,
    /// What is copied and what is left out; the last that matches counts.
    pub rules: Vec<Rule>,
    /// What the target takes over.
    pub preserve: Preserve,
    /// Several sources, or one into a directory that is there: each goes below the target under its name.
    pub into_directory: bool,
    /// Tells this command's source from others': what it gave a name once, it finds again.
    pub origin: Origin,
}

impl Options {
    /// What is left out.
    pub fn filter(&self) -> Result<Filter> {
        let rules: Vec<_> = self.rules.iter().cloned().map(Into::into).collect();
        let filter = Filter::new(&rules).map_err(Refusal::usage)?;
        Ok(filter.staying(self.one_file_system))
    }

    /// How long the other end may stay silent.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.into())
    }

    /// How many streams there are from beginning to end; none if that is found out on the way.
    pub fn streams_fixed(&self) -> Option<u16> {
        match self.streams {
            Streams::Exactly(count) => Some(count),
            Streams::Auto => None,
        }
    }
}

/// A pattern that says what is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// Copy what matches.
    Include(String),
    /// Leave out what matches.
    Exclude(String),
}

impl From<Rule> for filter::Rule {
    fn from(wire: Rule) -> Self {
        match wire {
            Rule::Include(pattern) => Self::Include(pattern),
            Rule::Exclude(pattern) => Self::Exclude(pattern),
        }
    }
}

/// How many connections carry data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// The copy finds out on the way.
    Auto,
    /// So many, from beginning to end.
    Exactly(u16),
}

/// How packets of all streams together are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// TCP spaces each stream's by its window and round trip (net/ipv4/tcp_input.c, `tcp_update_pacing_rate`).
    Auto,
    /// Packets leave as the window allows.
    Off,
    /// At most so many bits a second, in equal shares.
    Rate(u64),
}

/// What connections that carry data go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP, with TLS if data is encrypted.
    Tcp,
    /// UDT, always with TLS.
    Udt,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// It is done.
    On,
    /// It is not done.
    Off,
}

/// Ports, the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The least.
    pub first: u16,
    /// The greatest.
    pub last: u16,
}
