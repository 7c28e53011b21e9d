// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as it was asked for, after the check.

use super::location::Location;
use crate::protocol::options::{Options, Ports};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

/// What is to be copied where to, and how.
#[derive(Debug)]
pub(crate) struct Config {
    /// What shall be copied. Each place may be at several hosts, which share it.
    pub(crate) sources: Vec<Vec<Location>>,
    /// Where to.
    pub(crate) target: Vec<Location>,
    /// How, as both ends are told.
    pub(crate) options: Options,
    pub(crate) ports: Option<Ports>,
    pub(crate) ssh: String,
    pub(crate) remote_program: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) leases: Option<String>,
    pub(crate) movers: Option<u8>,
    pub(crate) distributed: Option<DistributedSide>,
    pub(crate) stripe: Option<Bytes>,
    pub(crate) extent: Option<Bytes>,
    pub(crate) lease_time: Time,
    pub(crate) json: bool,
    pub(crate) progress: bool,
    pub(crate) quiet: bool,
}

/// Which side's hosts keep a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DistributedSide {
    Source,
    Target,
    Both,
}

impl Config {
    /// Refuses what no hosts can do.
    pub(super) fn check(&self) -> Result<()> {
        check_one_source_host(&self.sources)?;
        if self.leases.is_none() && self.distributed.is_none() && self.pair_count() > 1 {
            return Err(Refusal::usage(
                "several hosts that see the same files share their work through a database: --leases postgresql://…; if each has \
                 files of its own: --apart source, target or both (or name one host)",
            ));
        }
        Ok(())
    }

    /// So many different ones there are until each host was in one.
    pub(crate) fn pair_count(&self) -> usize {
        let sources = self.sources.first().map_or(1, Vec::len);
        sources.max(self.target.len())
    }

    /// From one place of this machine to another.
    pub(crate) fn is_local(&self) -> bool {
        all_local(&self.sources, &self.target)
    }
}

/// Whether all places are on this machine.
pub(super) fn all_local(sources: &[Vec<Location>], target: &[Location]) -> bool {
    let mut places = sources.iter().flatten().chain(target);
    places.all(|place| place.host.is_none())
}

fn check_one_source_host(sources: &[Vec<Location>]) -> Result<()> {
    let hosts = |places: &[Location]| -> Vec<String> {
        let name = |place: &Location| place.host.as_ref().map(ToString::to_string);
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
