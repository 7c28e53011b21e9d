// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a site, checked.

use super::keys::{identity::Certificate, state::StateDir};
use longhaul_copy::protocol::options::Ports;
use longhaul_units::Time;
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};
use tokio::process::Command;

/// Returns a command that runs this program, also after an update has replaced the file.
pub(super) fn own_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("longhaul");
    command
}

/// Configuration of a site.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) listen: SocketAddr,
    pub(super) exports: BTreeMap<String, Export>,
    pub(super) http: Option<SocketAddr>,
    pub(super) https: Option<SocketAddr>,
    /// Certificate for HTTPS. `None` uses the site's own.
    pub(super) certificate: Option<Certificate>,
    pub(super) mirrors: Vec<MirrorConfig>,
    pub(super) ports: Option<Ports>,
    pub(super) copies_max: usize,
    pub(super) state: StateDir,
    pub(super) json: bool,
}

impl Config {
    /// Returns the directories of all exports except this one.
    pub(super) fn other_exports(&self, export: &str) -> Vec<PathBuf> {
        let others = self.exports.iter().filter(|(name, _)| *name != export);
        others.map(|(_, other)| other.directory.clone()).collect()
    }
}

/// Directory that clients may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    /// Absolute path without symbolic links. It is opened anew for each request, and must then still be the same
    /// directory.
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
}

/// Export that is copied to another site.
#[derive(Debug, Clone)]
pub(super) struct MirrorConfig {
    pub(super) export: String,
    pub(super) directory: PathBuf,
    /// Target in the syntax of `longhaul copy`.
    pub(super) target: PathBuf,
    pub(super) interval: Duration,
    /// Rules for removals; `None` removes nothing.
    pub(super) deletion: Option<Deletion>,
}

/// Removal of what an export no longer has.
#[derive(Debug, Clone)]
pub(super) struct Deletion {
    /// Knows the directories of exports.
    pub(super) state: StateDir,
    pub(super) max_delete: Option<String>,
    pub(super) trash: Option<Time>,
}
