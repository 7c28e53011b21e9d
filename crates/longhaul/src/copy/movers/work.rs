// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as the database has it: a job whose first extent is to plan the others.

use crate::copy::{
    job::Job,
    order::{Content, Extent},
    place::Place,
};
use anyhow::{Context as _, Result};
use lease::{Board, NewExtent, Standing};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use store::path::RelPath;

/// What a mover may take.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// To find out what there is, and to add the extents of it.
    Plan,
    Extent(Extent),
}

/// A copy that movers share.
pub(in crate::copy) struct Shared {
    pub(super) board: Board,
    pub(super) job: lease::Job,
}

impl Shared {
    /// The job of this command: whoever gives it, wherever, shares the same.
    pub(super) fn join(job: &Job<'_>, address: &str) -> Result<Self> {
        let board = Board::open(address).map_err(wrong)?;
        let spec = spec(job)?;
        let first = NewExtent {
            key: b"plan".to_vec(),
            body: postcard::to_stdvec(&Work::Plan)?,
            ..NewExtent::default()
        };
        let joined = board.join(&Sha256::digest(&spec), &spec, &first);
        let job = joined.map_err(wrong)?;
        Ok(Self { board, job })
    }

    pub(super) fn standing(&self) -> Result<Standing> {
        Ok(self.board.standing(self.job)?)
    }

    /// Nothing of it stays in the database.
    pub(in crate::copy) fn forget(&self) {
        if let Err(error) = self.board.forget(self.job) {
            eprintln!("longhaul: the job stays in {}: {error}", self.board.label());
        }
    }
}

/// What no repetition mends is the command's mistake.
fn wrong(error: lease::Error) -> anyhow::Error {
    match error.is_unreachable() {
        true => error.into(),
        false => crate::exit::Refusal::usage(error),
    }
}

/// What makes two commands the same copy. How fast and by how many is each one's own affair, and so is the order of hosts:
/// each begins with the first.
fn spec(job: &Job<'_>) -> Result<Vec<u8>> {
    let args = job.args;
    let places = job.sources.iter().chain([&job.target]);
    let places: Vec<BTreeSet<String>> = places.map(|places| hosts_and_path(places)).collect();
    let extent = args.extent.map(units::Bytes::get);
    let what = (places, &args.exclude, &args.include, args.update, extent);
    postcard::to_stdvec(&what).context("cannot name the job")
}

fn hosts_and_path(places: &[Place]) -> BTreeSet<String> {
    let shown = |place: &Place| format!("{:?} {:?}", place.host, place.path);
    places.iter().map(shown).collect()
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
