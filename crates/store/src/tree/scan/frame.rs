// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories on the current path of a scan. Each is one directory, or the directories of this path in several sources.

use crate::{
    path::RelPath,
    piece,
    root::{Failure, Names},
    tree::filter::Verdict,
};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;

/// Directory on the current path.
#[derive(Debug)]
pub(super) struct Frame {
    /// Path in the copy.
    pub(super) path: Option<RelPath>,
    pub(super) verdict: Verdict,
    /// The directory in each source that has it, in the sources' order.
    pub(super) layers: Vec<Layer>,
    /// Files of which the directory has pieces, still to be returned, with the layer. They come first.
    pub(super) pieces: VecDeque<(usize, Box<[u8]>)>,
}

/// Place of a directory in one source.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) source: usize,
    /// Path in the source's root.
    pub(super) path_in_root: Option<RelPath>,
    /// Device number of the source's top.
    pub(super) device: u64,
}

/// Directory of one source.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) place: Place,
    names: Names,
    next: usize,
    pieces: Vec<Box<[u8]>>,
}

/// Location of an entry.
pub(super) struct Location {
    pub(super) source: usize,
    pub(super) path_in_root: Option<RelPath>,
    pub(super) path: RelPath,
    /// Device number of the source's top.
    pub(super) device: u64,
}

impl Location {
    pub(super) fn directory_in_root(&self) -> Option<RelPath> {
        self.path_in_root.as_ref().and_then(RelPath::parent)
    }
}

impl Layer {
    /// Reads the names in a directory; `path` is its path in the copy. Also returns what could not be read.
    pub(super) fn read(
        place: Place,
        path: &Option<RelPath>,
        dir: BorrowedFd<'_>,
    ) -> (Self, Vec<Failure>) {
        let (names, error) = Names::read(dir);
        let (pieces, invalid) = piece::find_in_directory(dir, &names);
        let error = error.map(Failure::at(path.as_ref(), "read the directory"));
        let invalid = invalid
            .into_iter()
            .map(|error| error.into_failure(path.as_ref()));
        let failures = error.into_iter().chain(invalid).collect();
        let layer = Self {
            place,
            names,
            next: 0,
            pieces,
        };
        (layer, failures)
    }

    fn next_name(&self) -> Option<&[u8]> {
        self.names.get(self.next)
    }
}

impl Frame {
    pub(super) fn new(path: Option<RelPath>, verdict: Verdict) -> Self {
        Self {
            path,
            verdict,
            layers: Vec::new(),
            pieces: VecDeque::new(),
        }
    }

    /// Queues the pieces, except those of files that exist as a whole.
    pub(super) fn queue_pieces(&mut self) {
        let mut pieces = Vec::new();
        for at in 0..self.layers.len() {
            let found = std::mem::take(&mut self.layers[at].pieces);
            let is_whole = |file: &[u8]| self.layers.iter().any(|layer| layer.names.contains(file));
            let only_pieces = found.into_iter().filter(|file| !is_whole(file));
            pieces.extend(only_pieces.map(|file| (file, at)));
        }
        pieces.sort_unstable();
        self.pieces = pieces.into_iter().map(|(file, at)| (at, file)).collect();
    }

    /// Returns the next name, and the layers that have it.
    pub(super) fn next_name(&mut self) -> Option<(Vec<u8>, Vec<usize>)> {
        let names = self.layers.iter().filter_map(Layer::next_name);
        let name = names.min()?.to_vec();
        let mut layers = Vec::new();
        for (at, layer) in self.layers.iter_mut().enumerate() {
            if layer.next_name() == Some(&name) {
                layer.next += 1;
                layers.push(at);
            }
        }
        Some((name, layers))
    }

    /// Location of a name in this directory, in a layer.
    pub(super) fn location(&self, layer: usize, name: &[u8]) -> Result<Location, Failure> {
        let place = &self.layers[layer].place;
        Ok(Location {
            source: place.source,
            path_in_root: Some(join(place.path_in_root.as_ref(), name)?),
            path: join(self.path.as_ref(), name)?,
            device: place.device,
        })
    }
}

pub(super) fn join(dir: Option<&RelPath>, name: &[u8]) -> Result<RelPath, Failure> {
    Ok(match dir {
        Some(dir) => dir.join(name)?,
        None => RelPath::parse(name)?,
    })
}
