// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked configuration of a copy.

use super::location::Location;
use crate::protocol::options::{Options, Ports};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

/// Configuration of a copy.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Sources. Each has one location for each host of the source side.
    pub(crate) sources: Vec<Vec<Location>>,
    /// Target, with one location for each host of the target side.
    pub(crate) target: Vec<Location>,
    /// Options that both endpoints receive.
    pub(crate) options: Options,
    /// Ports for data at the listening endpoint; any if `None`.
    pub(crate) ports: Option<Ports>,
    /// Command that reaches another host, with its arguments.
    pub(crate) ssh: Vec<String>,
    /// Path of longhaul at another host.
    pub(crate) remote_program: String,
    /// File with the token for a site.
    pub(crate) token_file: Option<PathBuf>,
    /// URL of the database through which several workers share the copy.
    pub(crate) leases: Option<String>,
    #[cfg_attr(not(feature = "leases"), expect(dead_code, reason = "for workers"))]
    pub(crate) workers: WorkerConfig,
    pub(crate) distributed: Option<DistributedSide>,
    /// Length of the stripes of a distributed file.
    pub(crate) stripe: Option<Bytes>,
    pub(crate) json: bool,
    pub(crate) progress: bool,
    pub(crate) quiet: bool,
}

/// Configuration of the workers that share a copy.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "leases"), expect(dead_code, reason = "for workers"))]
pub(crate) struct WorkerConfig {
    /// Number of workers that this process runs.
    pub(crate) count: Option<u8>,
    /// Length of the parts of files that workers lease.
    pub(crate) extent: Option<Bytes>,
    /// Time after which a lease that its worker does not renew expires.
    pub(crate) lease_time: Time,
}

/// Side of a distributed copy whose hosts store a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DistributedSide {
    Source,
    Target,
    Both,
}

impl Config {
    /// Rejects combinations of hosts and options that no copy supports.
    pub(super) fn check(&self) -> Result<()> {
        check_one_source_host(&self.sources)?;
        self.options.filter()?;
        if self.leases.is_none() && self.distributed.is_none() && self.pair_count() > 1 {
            return Err(Refusal::usage(
                "several hosts that share a file system divide the work through a database: --leases postgresql://…; if each has \
                 files of its own: --distributed source, target or both (or name one host)",
            ));
        }
        Ok(())
    }

    /// Number of pairs of hosts in which each host appears at least once.
    pub(crate) fn pair_count(&self) -> usize {
        let sources = self.sources.first().map_or(1, Vec::len);
        sources.max(self.target.len())
    }

    /// Whether the copy stays on this machine.
    pub(crate) fn is_local(&self) -> bool {
        all_local(&self.sources, &self.target)
    }
}

/// Whether all locations are on this machine.
pub(super) fn all_local(sources: &[Vec<Location>], target: &[Location]) -> bool {
    let mut locations = sources.iter().flatten().chain(target);
    locations.all(|location| location.host.is_none())
}

fn check_one_source_host(sources: &[Vec<Location>]) -> Result<()> {
    let hosts = |locations: &[Location]| -> Vec<String> {
        let name = |location: &Location| location.host.as_ref().map(ToString::to_string);
        let host_name = |location| name(location).unwrap_or("this machine".to_owned());
        locations.iter().map(host_name).collect()
    };
    let mut all = sources.iter().map(|locations| hosts(locations).join(","));
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
