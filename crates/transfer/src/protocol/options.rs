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

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) streams: Streams,
    pub(crate) pace: Pace,
    pub(crate) congestion_control: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) encrypt: Switch,
    pub(crate) hash: Switch,
    /// Bits a second.
    pub(crate) limit: Option<u64>,
    /// Milliseconds.
    pub(crate) silence: u32,
    pub(crate) dry_run: bool,
    pub(crate) checksum: bool,
    pub(crate) delete: bool,
    pub(crate) update: bool,
    pub(crate) one_file_system: bool,
    pub(crate) rules: Vec<Rule>,
    /// What the target takes over.
    pub(crate) preserve: Preserve,
    /// Several sources, or one into a directory that is there: each goes below the target under its name.
    pub(crate) into_directory: bool,
    /// Tells this command's source from others': what it gave a name once, it finds again.
    pub(crate) origin: Origin,
}

impl Options {
    /// What is left out.
    pub(crate) fn filter(&self) -> Result<Filter> {
        let rules: Vec<_> = self.rules.iter().cloned().map(Into::into).collect();
        let filter = Filter::new(&rules).map_err(Refusal::usage)?;
        Ok(filter.staying(self.one_file_system))
    }

    /// How long the other end may stay silent.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.into())
    }

    /// How many streams there are from beginning to end; none if that is found out on the way.
    pub(crate) fn streams_fixed(&self) -> Option<u16> {
        match self.streams {
            Streams::Exactly(count) => Some(count),
            Streams::Auto => None,
        }
    }
}

/// A pattern that says what is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rule {
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
pub(crate) enum Streams {
    Auto,
    Exactly(u16),
}

/// How packets of all streams together are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// TCP spaces each stream's by its window and round trip (net/ipv4/tcp_input.c, `tcp_update_pacing_rate`).
    Auto,
    Off,
    /// At most so many bits a second, in equal shares.
    Rate(u64),
}

/// What connections that carry data go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Transport {
    Tcp,
    Udt,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Ports, the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}
