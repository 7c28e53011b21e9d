// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as its ends are told of it: between which hosts, and what each has to do.

use super::keyring::Keyring;
use crate::{
    copy::{
        config::Config,
        location::{Host, Location},
    },
    protocol::{
        control::{Role, Task},
        options::Options,
        spread::Share,
    },
};
use anyhow::Result;
use longhaul_store::tree::scan::source_name;
use std::{fmt, path::Path};

/// What shall be copied where to, and what lets in there.
pub(crate) struct Job<'a> {
    pub(crate) config: &'a Config,
    /// For sites.
    pub(super) keyring: Keyring,
}

/// Where the two ends of a conversation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPair<'a> {
    pub(super) source: Option<&'a Host>,
    pub(super) target: Option<&'a Host>,
}

impl fmt::Display for HostPair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}",
            host_name(self.source),
            host_name(self.target)
        )
    }
}

impl<'a> HostPair<'a> {
    pub(super) fn host(self, role: Role) -> Option<&'a Host> {
        match role {
            Role::Source => self.source,
            Role::Target => self.target,
        }
    }

    pub(super) fn name(self, role: Role) -> String {
        host_name(self.host(role))
    }
}

fn host_name(host: Option<&Host>) -> String {
    host.map_or("here".to_owned(), ToString::to_string)
}

impl<'a> Job<'a> {
    pub(crate) fn new(config: &'a Config) -> Result<Self> {
        let sites = config.sources.iter().chain([&config.target]).flatten();
        let sites: Vec<_> = sites.filter_map(Location::site_address).cloned().collect();
        let keys = Keyring::find(&sites, config.token_file.as_deref())?;
        Ok(Self {
            config,
            keyring: keys,
        })
    }

    /// Hosts of both sides, in turn.
    pub(crate) fn pair(&self, number: usize) -> HostPair<'_> {
        self.pair_of(number, number)
    }

    /// A host of either side, in turn.
    pub(crate) fn pair_of(&self, source: usize, target: usize) -> HostPair<'_> {
        let sources = self.config.sources.first();
        HostPair {
            source: sources.and_then(|places| nth_host(places, source)),
            target: nth_host(&self.config.target, target),
        }
    }

    pub(crate) fn source_name(&self, host: usize) -> String {
        self.pair(host).name(Role::Source)
    }

    fn target_names(&self) -> Vec<String> {
        let target = self.config.target.iter();
        target.map(|place| host_name(place.host.as_ref())).collect()
    }

    /// Where each host of the target is among them all in the order of their names: so it is the same in whichever order they
    /// are given.
    pub(crate) fn target_ranks(&self) -> Vec<u16> {
        let names = self.target_names();
        let before = |name: &String| names.iter().filter(|other| *other < name).count() as u16;
        names.iter().map(before).collect()
    }

    /// What the target of this rank keeps of each source that is spread.
    pub(super) fn target_shares(&self, rank: u16) -> Vec<Share> {
        let mut hosts = self.target_names();
        hosts.sort();
        let sources = self.config.sources.iter();
        let share = |place: &Location| Share {
            origin: self.config.options.origin,
            top: source_name(Path::new(&place.path)).ok().flatten(),
            rank,
            hosts: hosts.clone(),
        };
        sources
            .filter_map(|places| places.first())
            .map(share)
            .collect()
    }

    pub(super) fn options(&self, task: Task) -> Options {
        let options = &self.config.options;
        Options {
            // Only who sees all of it knows what is too much.
            delete: options.delete && !matches!(task, Task::Extents | Task::Gather(_)),
            ..options.clone()
        }
    }
}

fn nth_host(places: &[Location], number: usize) -> Option<&Host> {
    places.get(number % places.len().max(1))?.host.as_ref()
}
