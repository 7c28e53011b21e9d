// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loaded congestion controls, read from their pins and from the kernel.

use crate::{
    Error, choice, feature_probe,
    math::{Algorithm, algorithms, words},
    pins::{self, Pins},
    program::Program,
    socket_parameters::{self, CONNECTIONS},
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    query::{ProgInfoIter, ProgInfoQueryOptions},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Names of the pins in a directory.
pub(super) const LINK: &str = "link";
pub(super) const OPERATIONS: &str = "operations";
pub(super) const PARAMETERS: &str = "parameters";
pub(super) const ACKS: &str = "acks";
pub(super) const OWN_PARAMETERS: &str = "own-parameters";
/// Names of the metadata beside the pins: symbolic links, whose targets are the values.
pub(super) const LAYOUT: &str = "layout";
pub(super) const LOADED_BY: &str = "loaded-by";
pub(super) const MAP: &str = "map";
pub(super) const TRANSIENT: &str = "transient";

/// Value of `loaded-by` for this build.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Parameters of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Values in the order of [`Algorithm::parameters`].
    pub parameters: &'a [u32],
    /// Whether to record [`AckCounts`](crate::watch::ack_counts::AckCounts) of each connection: 96 B, and
    /// some tens of nanoseconds an ACK.
    pub count_acks: bool,
}

impl<'a, P: AsRef<[u32]> + ?Sized> From<&'a P> for Request<'a> {
    fn from(parameters: &'a P) -> Self {
        Self {
            parameters: parameters.as_ref(),
            count_acks: false,
        }
    }
}

/// A loaded congestion control.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub(super) algorithm: Algorithm,
    pub(super) directory: PathBuf,
}

impl Loaded {
    /// Returns the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the directory of its pins.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the map of its connections' storage. Programs that set parameters of single sockets reuse it;
    /// its values are [`socket_parameters::value`].
    pub fn connections(&self) -> Result<MapHandle, Error> {
        self.map(CONNECTIONS)
    }

    /// Whether ACKs are counted, for connections that began after counting was enabled.
    #[must_use]
    pub fn counts_acks(&self) -> bool {
        self.directory.join(ACKS).exists()
    }

    /// Returns the map of the counts: `struct ack_counts` beside each connection.
    pub(crate) fn acks(&self) -> Result<MapHandle, Error> {
        self.map(ACKS)
    }

    pub(super) fn matches(&self, request: Request<'_>) -> Result<bool, Error> {
        let parameters = self.parameters()?;
        Ok(parameters == request.parameters && self.counts_acks() == request.count_acks)
    }

    /// Returns the parameters of new connections, in the order of [`Algorithm::parameters`].
    pub fn parameters(&self) -> Result<Vec<u32>, Error> {
        if self.algorithm.parameters().next().is_none() {
            return Ok(Vec::new());
        }
        let map = self.map(PARAMETERS)?;
        let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|error| feature_probe::failed("read its parameters", &error))?;
        let count = self.algorithm.parameters().count();
        Ok(words(&found.unwrap_or_default()).take(count).collect())
    }

    /// Whether this build can read its connections' state.
    #[must_use]
    pub fn has_same_layout(&self) -> bool {
        pins::metadata(&self.directory, LAYOUT) == Some(layout_of(self.algorithm))
    }

    /// Returns the version of the longhaul that loaded it.
    #[must_use]
    pub fn loaded_by(&self) -> String {
        pins::metadata(&self.directory, LOADED_BY).unwrap_or_else(|| "?".to_owned())
    }

    /// Returns the time of the load.
    #[must_use]
    pub fn loaded_at(&self) -> Option<SystemTime> {
        fs::symlink_metadata(self.directory.join(LAYOUT))
            .ok()?
            .modified()
            .ok()
    }

    /// Whether the congestion control is unloaded with its last lease ([`acquire`](super::acquire())).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        pins::metadata(&self.directory, TRANSIENT).is_some()
    }

    /// Stores metadata of the caller until the congestion control is unloaded. `name` has no dots.
    pub fn set_metadata(&self, name: &str, value: &str) -> Result<(), Error> {
        let stored = pins::set_metadata(&self.directory, name, value);
        stored.map_err(|source| self.error(source))
    }

    /// Returns the value that [`Self::set_metadata`] stored under `name`; `None` if there is none.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<String> {
        pins::metadata(&self.directory, name)
    }

    /// Returns its programs in the kernel: those that share their type information with one that uses its
    /// map.
    pub fn programs(&self) -> Result<Vec<Program>, Error> {
        // The map of parameters is of this load only; that of connections survives a replacement.
        let map = match self.algorithm.parameters().next() {
            Some(_) => self.map(PARAMETERS)?,
            None => self.connections()?,
        };
        let map = map
            .info()
            .map_err(|error| feature_probe::failed("ask about its map", &error))?;
        let options = ProgInfoQueryOptions::default()
            .include_map_ids(true)
            .include_xlated_prog_insns(true)
            .include_jited_prog_insns(true);
        let all: Vec<_> = ProgInfoIter::with_query_opts(options).collect();
        let users = all.iter().filter(|p| p.map_ids.contains(&map.info.id));
        let types: Vec<_> = users.map(|program| program.btf_id).collect();
        let ours = all.into_iter().filter(|p| types.contains(&p.btf_id));
        Ok(ours.map(Program::from).collect())
    }

    /// Gives the programs of a cgroup (version 2) the socket option of [`socket_parameters`], until it is
    /// unloaded or another cgroup is given.
    pub fn attach_socket_option(&self, cgroup: BorrowedFd<'_>) -> Result<(), Error> {
        let connections = self.connections()?;
        let mut link = socket_parameters::attach(self.algorithm, connections.as_fd(), cgroup)?;
        let unpinned = pins::unpin(&self.directory, OWN_PARAMETERS);
        unpinned.map_err(|source| self.error(source))?;
        let pinned = link.pin(self.directory.join(OWN_PARAMETERS));
        pinned.map_err(|error| feature_probe::failed("pin the socket option", &error))
    }

    /// Whether a cgroup has the socket option.
    #[must_use]
    pub fn has_socket_option(&self) -> bool {
        self.directory.join(OWN_PARAMETERS).exists()
    }

    /// Whether this version loaded it, with this layout.
    pub(super) fn is_of_this_build(&self) -> bool {
        self.has_same_layout() && self.loaded_by() == VERSION
    }

    /// Returns the error of a load that differs from the request.
    pub(super) fn mismatch(&self, same_build: bool) -> Error {
        let name = self.algorithm.system_name();
        Error::Loaded(if same_build {
            format!(
                "{name} is loaded with other parameters or counts: --replace sets these for connections that \
             begin later"
            )
        } else {
            format!(
                "{name} is loaded, by another longhaul ({}): --replace puts this one's in its place",
                self.loaded_by()
            )
        })
    }

    /// Takes a shared lock, which keeps it loaded as long as the file is open.
    pub(super) fn lock_shared(&self) -> io::Result<File> {
        let file = File::open(&self.directory)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(file)
    }

    /// Whether a process has a lease.
    pub(super) fn is_leased(&self) -> bool {
        let file = File::open(&self.directory);
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    fn map(&self, pin: &str) -> Result<MapHandle, Error> {
        let path = self.directory.join(pin);
        let map = feature_probe::capture_warnings(|| MapHandle::from_pinned_path(path));
        map.map_err(|error| feature_probe::failed("open its map", &error))
    }

    pub(super) fn error(&self, reason: io::Error) -> Error {
        Error::Pins {
            path: self.directory.clone(),
            reason,
        }
    }
}

impl From<libbpf_rs::query::ProgramInfo> for Program {
    fn from(info: libbpf_rs::query::ProgramInfo) -> Self {
        /// `sizeof(struct bpf_insn)`
        const INSTRUCTION: usize = 8;
        Self {
            name: info.name.to_string_lossy().into_owned(),
            verified: info.verified_insns,
            instructions: info.xlated_prog_insns.len() / INSTRUCTION,
            machine_code_bytes: info.jited_prog_insns.len(),
        }
    }
}

pub(super) fn layout_of(algorithm: Algorithm) -> String {
    format!("{:016x}", algorithm.layout_digest())
}

/// Returns the loaded congestion control of this algorithm, if any. Needs root: the pins are readable by root
/// only.
pub fn loaded(pins: &Pins, algorithm: Algorithm) -> Result<Option<Loaded>, Error> {
    let directory = pins.directory_of(algorithm.name());
    match fs::symlink_metadata(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome.map_err(|reason| pins.error(&directory, reason))?,
    };
    let pinned = [LINK, OPERATIONS]
        .iter()
        .any(|pin| directory.join(pin).exists());
    let is_loaded = pinned && choice::is_registered(&algorithm.system_name());
    Ok(is_loaded.then_some(Loaded {
        algorithm,
        directory,
    }))
}

/// Returns all loaded congestion controls, in the order of [`algorithms`].
pub fn all_loaded(pins: &Pins) -> Result<Vec<Loaded>, Error> {
    algorithms()
        .filter_map(|algorithm| loaded(pins, algorithm).transpose())
        .collect()
}
