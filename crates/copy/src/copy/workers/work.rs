// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy job in the database. Its first extent is to plan the others.

use crate::{
    copy::{config::Config, location::Location, session::job::Job},
    protocol::control::{Content, Extent},
};
use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_leases::{JobStatus, JobStore, Lease, NewTask};
use longhaul_store::{
    path::RelPath,
    tree::{filter::Rule, preserve::Preserve},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeSet, fmt, fs, os::unix::ffi::OsStrExt as _};

/// Work of one lease.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Scan the sources, and add their extents.
    Plan,
    /// Copy the data of an extent.
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

/// Copy job that workers share.
pub(crate) struct SharedJob {
    pub(super) job_store: JobStore,
    pub(super) job: longhaul_leases::Job,
    /// Pair of hosts that worked last.
    pub(crate) last_pair: usize,
}

impl SharedJob {
    /// Joins the job of this command. All processes with an equal command, on any host, share one job.
    pub(super) fn join(job: &Job<'_>, address: &str) -> Result<Self> {
        let job_store = open(address)?;
        let spec = postcard::to_stdvec(&Spec::of(job.config))?;
        let first = NewTask {
            key: b"plan".to_vec(),
            body: postcard::to_stdvec(&Work::Plan)?,
            ..NewTask::default()
        };
        let joined = job_store.join(&Sha256::digest(&spec), &spec, &first);
        let job = joined.map_err(refuse_permanent)?;
        Ok(Self {
            job_store,
            job,
            last_pair: 0,
        })
    }

    pub(super) fn status(&self) -> Result<JobStatus> {
        Ok(self.job_store.status(self.job)?)
    }

    /// Removes the job from the database.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.job_store.delete_job(self.job) {
            errln!(
                "longhaul: the job stays in {}: {error}",
                self.job_store.label()
            );
        }
    }
}

/// Turns an error that a retry does not change into a refusal.
pub(super) fn refuse_permanent(error: longhaul_leases::Error) -> anyhow::Error {
    if error.is_unreachable() {
        error.into()
    } else {
        Refusal::usage(format!("{:#}", anyhow::Error::from(error)))
    }
}

/// Parameters that two commands must have in common to share a job. Rates, the number of workers and the order of hosts may
/// differ: each process starts with its first hosts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) sources: Vec<SharedLocation>,
    pub(super) target: SharedLocation,
    rules: Vec<Rule>,
    update: bool,
    modify_window_s: Option<u32>,
    one_file_system: bool,
    hard_links: bool,
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
            modify_window_s: options.modify_window_s,
            one_file_system: options.one_file_system,
            hard_links: options.hard_links,
            extent: config.workers.extent.map(longhaul_units::Bytes::get),
            preserve: options.preserve,
        }
    }

    /// Decodes the parameters. Those of another version cannot be decoded, and are listed as unreadable.
    pub(super) fn read(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or_else(|_| Self {
            sources: vec![SharedLocation::unreadable()],
            target: SharedLocation::unreadable(),
            rules: Vec::new(),
            update: false,
            modify_window_s: None,
            one_file_system: false,
            hard_links: true,
            extent: None,
            preserve: Preserve::default(),
        })
    }
}

/// Hosts, sorted by name, and the path that they share.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SharedLocation {
    hosts: BTreeSet<String>,
    path: Vec<u8>,
}

impl SharedLocation {
    fn of(locations: &[Location]) -> Self {
        let hosts = locations
            .iter()
            .filter_map(|location| location.host.as_ref());
        let path = locations
            .first()
            .map(|location| location.path.as_bytes().to_vec());
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

/// Writes the location as on the command line. Bytes that are not UTF-8 are replaced.
impl fmt::Display for SharedLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = Vec::from_iter(self.hosts.iter().map(String::as_str)).join(",");
        let colon = if hosts.is_empty() { "" } else { ":" };
        write!(f, "{hosts}{colon}{}", String::from_utf8_lossy(&self.path))
    }
}

/// Opens the database at a URL, or at the URL in a file (`@FILE`).
pub(super) fn open(address: &str) -> Result<JobStore> {
    let Some(file) = address.strip_prefix('@') else {
        return JobStore::open(address).map_err(refuse_permanent);
    };
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| Refusal::usage(format!("--leases @{file}: {error}")))?;
    JobStore::open(text.lines().next().unwrap_or_default().trim()).map_err(refuse_permanent)
}

/// Returns an extent in the form of the database.
pub(super) fn new_extent(extent: Extent, bytes: u64) -> Result<NewTask> {
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
    Ok(NewTask {
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
