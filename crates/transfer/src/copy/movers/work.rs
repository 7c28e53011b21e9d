// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as the database has it: a job whose first extent is to plan the others.

use crate::{
    copy::{config::Config, location::Location, session::job::Job},
    protocol::{
        control::{Content, Extent},
        options::Rule,
        preserve::Preserve,
    },
};
use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_leases::{Board, Lease, NewExtent, Standing};
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeSet, fmt, fs, os::unix::ffi::OsStrExt as _};

/// What a mover may take.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// To find out what there is, and to add the extents of it.
    Plan,
    Extent(Extent),
}

impl Work {
    pub(super) fn of(lease: &Lease) -> Result<Self> {
        postcard::from_bytes(&lease.body).map_err(|_| {
            Refusal::usage(
                "the job in the database is of another version of longhaul: remove it (longhaul copy jobs --leases … --forget NUMBER)",
            )
        })
    }
}

/// A copy that movers share.
pub(crate) struct SharedJob {
    pub(super) board: Board,
    pub(super) job: longhaul_leases::Job,
    /// The pair of hosts that worked last.
    pub(crate) last_pair: usize,
}

impl SharedJob {
    /// The job of this command: whoever gives it, wherever, shares the same.
    pub(super) fn join(job: &Job<'_>, address: &str) -> Result<Self> {
        let board = open(address)?;
        let spec = postcard::to_stdvec(&Spec::of(job.config))?;
        let first = NewExtent {
            key: b"plan".to_vec(),
            body: postcard::to_stdvec(&Work::Plan)?,
            ..NewExtent::default()
        };
        let joined = board.join(&Sha256::digest(&spec), &spec, &first);
        let job = joined.map_err(refuse_permanent)?;
        Ok(Self {
            board,
            job,
            last_pair: 0,
        })
    }

    pub(super) fn status(&self) -> Result<Standing> {
        Ok(self.board.standing(self.job)?)
    }

    /// Nothing of it stays in the database.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.board.forget(self.job) {
            errln!("longhaul: the job stays in {}: {error}", self.board.label());
        }
    }
}

/// What no repetition mends is the command's mistake.
pub(super) fn refuse_permanent(error: longhaul_leases::Error) -> anyhow::Error {
    match error.is_unreachable() {
        true => error.into(),
        false => Refusal::usage(format!("{:#}", anyhow::Error::from(error))),
    }
}

/// What makes two commands the same copy. How fast and by how many is each one's own affair, and so is the order of hosts:
/// each begins with the first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) sources: Vec<SharedLocation>,
    pub(super) target: SharedLocation,
    rules: Vec<Rule>,
    update: bool,
    one_file_system: bool,
    extent: Option<u64>,
    preserve: Preserve,
}

impl Spec {
    fn of(config: &Config) -> Self {
        let options = config.options.clone();
        Self {
            sources: config
                .sources
                .iter()
                .map(|source| SharedLocation::of(source))
                .collect(),
            target: SharedLocation::of(&config.target),
            rules: options.rules,
            update: options.update,
            one_file_system: options.one_file_system,
            extent: config.extent.map(longhaul_units::Bytes::get),
            preserve: options.preserve,
        }
    }

    /// What another version wrote can't be read, but listed.
    pub(super) fn read(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or_else(|_| Self {
            sources: vec![SharedLocation::unreadable()],
            target: SharedLocation::unreadable(),
            rules: Vec::new(),
            update: false,
            one_file_system: false,
            extent: None,
            preserve: longhaul_store::tree::preserve::Preserve::default().into(),
        })
    }
}

/// Hosts in the order of their names, and the path that they share.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SharedLocation {
    hosts: BTreeSet<String>,
    path: Vec<u8>,
}

impl SharedLocation {
    fn of(places: &[Location]) -> Self {
        let hosts = places.iter().filter_map(|place| place.host.as_ref());
        let path = places.first().map(|place| place.path.as_bytes().to_vec());
        Self {
            hosts: hosts.map(ToString::to_string).collect(),
            path: path.unwrap_or_default(),
        }
    }

    fn unreadable() -> Self {
        Self {
            hosts: BTreeSet::new(),
            path: b"(of another version of longhaul)".to_vec(),
        }
    }
}

/// As on the command line, but for bytes that are not UTF-8.
impl fmt::Display for SharedLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = Vec::from_iter(self.hosts.iter().map(String::as_str)).join(",");
        let colon = if hosts.is_empty() { "" } else { ":" };
        write!(f, "{hosts}{colon}{}", String::from_utf8_lossy(&self.path))
    }
}

/// The database at an address, or at the one in a file.
pub(super) fn open(address: &str) -> Result<Board> {
    let Some(file) = address.strip_prefix('@') else {
        return Board::open(address).map_err(refuse_permanent);
    };
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| Refusal::usage(format!("--leases @{file}: {error}")))?;
    Board::open(text.lines().next().unwrap_or_default().trim()).map_err(refuse_permanent)
}

/// As the database has it.
pub(super) fn new_extent(extent: Extent, bytes: u64) -> Result<NewExtent> {
    let (key, group, after) = match &extent.content {
        Content::Files(paths) => {
            let first = paths.first().map(RelPath::as_bytes).unwrap_or_default();
            (key(b'f', extent.source, first), None, None)
        }
        Content::Blocks { path, blocks, .. } => {
            let mut name = key(b'b', extent.source, path.as_bytes());
            name.extend(blocks.start.to_be_bytes());
            (name, Some(key(b'g', extent.source, path.as_bytes())), None)
        }
        Content::Name(path) => {
            let all = key(b'g', extent.source, path.as_bytes());
            (key(b'n', extent.source, path.as_bytes()), None, Some(all))
        }
    };
    Ok(NewExtent {
        key,
        body: postcard::to_stdvec(&Work::Extent(extent))?,
        bytes,
        group,
        after,
    })
}

fn key(kind: u8, source: u32, path: &[u8]) -> Vec<u8> {
    [&[kind][..], &source.to_be_bytes(), path].concat()
}
