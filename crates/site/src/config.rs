// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands after the check.

use super::keys::{identity::Certificate, state::State};
use longhaul_transfer::protocol::options::Ports;
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

/// This program, also when an update has put another in its place.
pub(super) const SELF: &str = "/proc/self/exe";

/// A site as it is to run.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) listen: SocketAddr,
    pub(super) exports: BTreeMap<String, Export>,
    pub(super) http: Option<SocketAddr>,
    pub(super) https: Option<SocketAddr>,
    /// For HTTPS; none is the site's own.
    pub(super) certificate: Option<Certificate>,
    pub(super) mirrors: Vec<Mirrored>,
    pub(super) ports: Option<Ports>,
    pub(super) copies_max: usize,
    pub(super) state: State,
    pub(super) json: bool,
}

impl Config {
    /// The directories of all exports but this one.
    pub(super) fn others<C: FromIterator<PathBuf>>(&self, export: &str) -> C {
        let others = self.exports.iter().filter(|(name, _)| *name != export);
        others.map(|(_, other)| other.directory.clone()).collect()
    }
}

/// A directory that others may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    /// Absolute, without symbolic links: it is opened anew for each request, and must not have become another one.
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
}

/// An export of which there is another elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirrored {
    pub(super) export: String,
    pub(super) directory: PathBuf,
    /// As `longhaul copy` is told.
    pub(super) to: PathBuf,
    pub(super) every: Duration,
    pub(super) delete: bool,
}

/// What is spoken on a listener of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}
