// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as its ends are told of it: between which hosts, and what each has to do.

use super::keyring::Keyring;
use crate::{
    copy::{
        config::Config,
        place::{Host, Place},
    },
    protocol::{
        options::{Options, Streams, Switch},
        order::{Role, Task},
    },
};
use anyhow::Result;
use longhaul_store::{
    origin::Origin,
    scan::{means_contents, source_name},
    spread::Share,
};
use sha2::{Digest as _, Sha256};
use std::{fmt, os::unix::ffi::OsStrExt, path::Path};

/// Streams within one machine: a thread at either end each, and no path to fill.
const STREAMS_HERE: u16 = 4;

/// What shall be copied where to, and what lets in there.
pub(crate) struct Job<'a> {
    pub(crate) config: &'a Config,
    /// For sites.
    pub(super) keys: Keyring,
}

/// Names of the hosts of both ends.
pub(crate) struct HostNames {
    pub(crate) source: String,
    pub(crate) target: String,
}

impl HostNames {
    pub(crate) fn of(&self, role: Role) -> &str {
        match role {
            Role::Source => &self.source,
            Role::Target => &self.target,
        }
    }
}

/// Where the two ends of a conversation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair<'a> {
    pub(super) source: Option<&'a Host>,
    pub(super) target: Option<&'a Host>,
}

impl fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", name(self.source), name(self.target))
    }
}

impl Pair<'_> {
    pub(crate) fn names(&self) -> HostNames {
        HostNames {
            source: name(self.source),
            target: name(self.target),
        }
    }

    pub(crate) fn target_name(&self) -> String {
        name(self.target)
    }
}

fn name(host: Option<&Host>) -> String {
    host.map_or("here".to_owned(), ToString::to_string)
}

impl<'a> Job<'a> {
    pub(crate) fn new(config: &'a Config) -> Result<Self> {
        let sites = config.sources.iter().chain([&config.target]).flatten();
        let sites: Vec<_> = sites.filter_map(Place::site).cloned().collect();
        let keys = Keyring::find(&sites, config.token_file.as_deref())?;
        Ok(Self { config, keys })
    }

    /// So many different ones there are until each host was in one.
    pub(crate) fn pairs(&self) -> usize {
        self.config.pairs()
    }

    /// Hosts of both sides, in turn.
    pub(crate) fn pair(&self, number: usize) -> Pair<'_> {
        self.pair_of(number, number)
    }

    /// A host of either side, in turn.
    pub(crate) fn pair_of(&self, source: usize, target: usize) -> Pair<'_> {
        let sources = self.config.sources.first();
        Pair {
            source: sources.and_then(|places| host_of(places, source)),
            target: host_of(&self.config.target, target),
        }
    }

    pub(crate) fn source_name(&self, host: usize) -> String {
        name(self.pair(host).source)
    }

    /// Where each host of the target is among them all in the order of their names: so it is the same in whichever order they
    /// are given.
    pub(crate) fn target_ranks(&self) -> Vec<u16> {
        let names: Vec<String> = (0..self.config.target.len())
            .map(|host| self.pair(host).target_name())
            .collect();
        let before = |name: &String| names.iter().filter(|other| *other < name).count() as u16;
        names.iter().map(before).collect()
    }

    pub(crate) fn goes_abroad(&self) -> bool {
        !self.config.stays_here()
    }

    /// What the target of this rank keeps of each source that is spread.
    pub(super) fn shares(&self, rank: u16) -> Vec<Share> {
        let mut hosts: Vec<String> = (0..self.config.target.len())
            .map(|host| self.pair(host).target_name())
            .collect();
        hosts.sort();
        let sources = self
            .config
            .sources
            .iter()
            .filter_map(|places| places.first());
        let share = |place: &Place| Share {
            origin: self.origin(),
            top: source_name(Path::new(&place.path)).ok().flatten(),
            rank,
            hosts: hosts.clone(),
        };
        sources.map(share).collect()
    }

    pub(super) fn options(&self, task: Task) -> Options {
        let config = self.config;
        Options {
            streams: match (config.streams, config.stays_here()) {
                // Nothing goes over them.
                _ if config.dry_run => Streams::Exactly(1),
                (Streams::Auto, true) => Streams::Exactly(STREAMS_HERE),
                (streams, _) => streams,
            },
            pace: config.pace,
            congestion_control: config.congestion_control.clone(),
            transport: config.transport,
            encrypt: config.encrypt.unwrap_or(match config.stays_here() {
                true => Switch::Off,
                false => Switch::On,
            }),
            hash: config.hash,
            limit: config.limit.map(longhaul_units::BitRate::bits),
            silence: config.silence,
            dry_run: config.dry_run,
            checksum: config.checksum,
            // Only who sees all of it knows what is too much.
            delete: config.delete && !matches!(task, Task::Extents | Task::Gather(_)),
            update: config.update,
            one_file_system: config.one_file_system,
            rules: config.rules.clone(),
            preserve: config.preserve.clone(),
            into_directory: self.goes_into_directory(),
            origin: self.origin(),
        }
    }

    /// The same for the same command, from wherever on this machine.
    fn origin(&self) -> Origin {
        let shown = |place: &Place| match &place.host {
            Some(host) => format!("{host} {:?}", place.path),
            None => format!("{:?}", std::path::absolute(&place.path).ok()),
        };
        let sources = self.config.sources.iter().flatten().map(shown);
        Sha256::digest(sources.collect::<Vec<_>>().join("\n")).into()
    }

    /// With several always: what one of them makes must not change what the next one means.
    fn goes_into_directory(&self) -> bool {
        let slash = |place: &Place| place.path.as_bytes().ends_with(b"/");
        let contents = |place: &Place| means_contents(Path::new(&place.path));
        self.config.sources.len() > 1
            || self.config.leases.is_some()
            || self.config.apart.is_some()
            || self.config.target.iter().any(slash)
            || self.config.sources.iter().flatten().any(contents)
    }
}

fn host_of(places: &[Place], number: usize) -> Option<&Host> {
    places.get(number % places.len().max(1))?.host.as_ref()
}
