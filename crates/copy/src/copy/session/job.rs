// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy job: its configuration, and the hosts and options of each session.

use super::keyring::Keyring;
use crate::{
    copy::{
        config::Config,
        location::{Host, Location},
    },
    protocol::{
        control::{Role, Task},
        options::Options,
    },
};
use anyhow::Result;
use longhaul_store::tree::{scan::source_name, spread::TreeShare};
use std::{
    fmt,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

/// Configuration of a copy, and the tokens for its sites.
pub(crate) struct Job<'a> {
    pub(crate) config: &'a Config,
    /// Tokens for sites.
    pub(super) keyring: Keyring,
    /// Whether a session between two endpoints was started.
    pub(super) has_started: AtomicBool,
    /// Whether the data goes through ssh, which a line has said.
    pub(super) through_ssh: Arc<AtomicBool>,
    /// Whether ssh's server refused to forward a connection.
    pub(super) are_tunnels_refused: Arc<AtomicBool>,
}

/// Hosts of the two endpoints of a session; `None` is this machine.
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

impl Job<'_> {
    /// Returns whether the data goes through ssh, as it becomes known.
    pub(crate) fn through_ssh(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.through_ssh)
    }
}

impl<'a> Job<'a> {
    pub(crate) fn new(config: &'a Config) -> Result<Self> {
        let sites = config.sources.iter().chain([&config.target]).flatten();
        let sites: Vec<_> = sites.filter_map(Location::site_address).cloned().collect();
        let keys = Keyring::find(&sites, config.token_file.as_deref())?;
        Ok(Self {
            config,
            keyring: keys,
            has_started: AtomicBool::new(false),
            through_ssh: Arc::default(),
            are_tunnels_refused: Arc::default(),
        })
    }

    /// Returns the pair of hosts of a session: the hosts of both sides, in turn.
    pub(crate) fn pair(&self, number: usize) -> HostPair<'_> {
        self.pair_of(number, number)
    }

    /// Returns a pair of hosts by an index for each side, in turn.
    pub(crate) fn pair_of(&self, source: usize, target: usize) -> HostPair<'_> {
        let sources = self.config.sources.first();
        HostPair {
            source: sources.and_then(|locations| nth_host(locations, source)),
            target: nth_host(&self.config.target, target),
        }
    }

    pub(crate) fn source_name(&self, host: usize) -> String {
        self.pair(host).name(Role::Source)
    }

    fn target_names(&self) -> Vec<String> {
        let target = self.config.target.iter();
        target
            .map(|location| host_name(location.host.as_ref()))
            .collect()
    }

    /// Returns the rank of each target host in the order of names. The rank does not depend on the order on the command line.
    pub(crate) fn target_ranks(&self) -> Vec<u16> {
        let names = self.target_names();
        let before = |name: &String| names.iter().filter(|other| *other < name).count() as u16;
        names.iter().map(before).collect()
    }

    /// Returns the shares that the target of this rank stores, one of each distributed source.
    pub(super) fn target_shares(&self, rank: u16) -> Vec<TreeShare> {
        let mut hosts = self.target_names();
        hosts.sort();
        let sources = self.config.sources.iter();
        let share = |location: &Location| TreeShare {
            origin: self.config.options.origin,
            top: source_name(Path::new(&location.path)).ok().flatten(),
            rank,
            hosts: hosts.clone(),
        };
        sources
            .filter_map(|locations| locations.first())
            .map(share)
            .collect()
    }

    pub(super) fn options(&self, task: Task) -> Options {
        let options = &self.config.options;
        Options {
            // Only an endpoint that sees all entries knows which ones to delete.
            delete: options.delete && !matches!(task, Task::Extents | Task::Gather(_)),
            ..options.clone()
        }
    }
}

fn nth_host(locations: &[Location], number: usize) -> Option<&Host> {
    locations
        .get(number % locations.len().max(1))?
        .host
        .as_ref()
}
