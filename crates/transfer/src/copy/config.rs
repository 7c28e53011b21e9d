// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as it was asked for, after the check.

use super::place::Place;
use crate::protocol::options::{Pace, Ports, Streams, Switch, Transport};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{filter::Rule, preserve::Preserve};
use longhaul_units::{BitRate, Bytes, Time};
use std::path::PathBuf;

/// What is to be copied where to, and how.
#[derive(Debug)]
pub(crate) struct Config {
    /// What shall be copied. Each place may be at several hosts, which share it.
    pub(crate) sources: Vec<Vec<Place>>,
    /// Where to.
    pub(crate) target: Vec<Place>,
    pub(crate) streams: Streams,
    pub(crate) pace: Pace,
    pub(crate) congestion_control: Option<String>,
    pub(crate) transport: Transport,
    /// Of all streams together.
    pub(crate) limit: Option<BitRate>,
    /// None: where it goes abroad.
    pub(crate) encrypt: Option<Switch>,
    pub(crate) hash: Switch,
    /// Milliseconds.
    pub(crate) silence: u32,
    pub(crate) dry_run: bool,
    pub(crate) checksum: bool,
    pub(crate) delete: bool,
    pub(crate) update: bool,
    pub(crate) one_file_system: bool,
    pub(crate) rules: Vec<Rule>,
    pub(crate) preserve: Preserve,
    pub(crate) ports: Option<Ports>,
    pub(crate) ssh: String,
    pub(crate) remote_program: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) leases: Option<String>,
    pub(crate) movers: Option<u8>,
    pub(crate) apart: Option<Apart>,
    pub(crate) stripe: Option<Bytes>,
    pub(crate) extent: Option<Bytes>,
    pub(crate) lease_time: Time,
    pub(crate) json: bool,
    pub(crate) progress: bool,
    pub(crate) quiet: bool,
}

/// Which side's hosts keep a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    Source,
    Target,
    Both,
}

impl Config {
    /// Refuses what no hosts can do.
    pub(super) fn check(&self) -> Result<()> {
        on_one_side(&self.sources)?;
        if self.leases.is_none() && self.apart.is_none() && self.pairs() > 1 {
            return Err(Refusal::usage(
                "several hosts that see the same files share their work through a database: --leases postgresql://…; if each has \
                 files of its own: --apart source, target or both (or name one host)",
            ));
        }
        Ok(())
    }

    /// So many different ones there are until each host was in one.
    pub(crate) fn pairs(&self) -> usize {
        let sources = self.sources.first().map_or(1, Vec::len);
        sources.max(self.target.len())
    }

    /// From one place of this machine to another.
    pub(super) fn stays_here(&self) -> bool {
        let mut places = self.sources.iter().chain([&self.target]).flatten();
        places.all(|place| place.host.is_none())
    }
}

fn on_one_side(sources: &[Vec<Place>]) -> Result<()> {
    let hosts = |places: &[Place]| -> Vec<String> {
        let name = |place: &Place| place.host.as_ref().map(ToString::to_string);
        let shown = |place| name(place).unwrap_or("this machine".to_owned());
        places.iter().map(shown).collect()
    };
    let mut all = sources.iter().map(|places| hosts(places).join(","));
    let Some(first) = all.next() else {
        return Ok(());
    };
    match all.find(|other| *other != first) {
        None => Ok(()),
        Some(other) => Err(Refusal::usage(format!(
            "sources are on {first} and on {other}: copy from one host at a time"
        ))),
    }
}
