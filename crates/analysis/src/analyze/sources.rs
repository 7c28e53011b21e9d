// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merge of all files of an analysis into one stream of batches.
//!
//! A file is opened when the time of its first packet has come. Of several open files, the one with the earliest
//! time is read next, so at most one batch of each waits for the others. A file that begins after another with the
//! same interfaces ended is its continuation (a rotated capture). Otherwise it was captured at another point.

use super::{
    load::Load,
    source::{self, Source},
};
use anyhow::Result;
use longhaul_flow::segment::CapturePoint;
use longhaul_packet::capture::{Interface, LinkType};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum time by which a continuation may begin before the last packet of the file before it, because captures
/// of several interfaces are not strictly in order. A hundredth of that file's length is a second limit.
const OVERLAP_NS: u64 = 1_000_000_000;

/// Files of an analysis, some of them open.
pub(super) struct Sources {
    /// Files that are not open yet, in order of their first packets.
    waiting: VecDeque<Waiting>,
    active: Vec<Active>,
    tracks: Vec<Track>,
    /// Capture points.
    places: Vec<Place>,
    /// Facts about each file, in the order of the command line.
    files: Vec<FileFacts>,
    packets: u64,
    /// True after files overlapped in time.
    mixed: bool,
    ended: bool,
}

/// Facts about a file that reading it finds.
#[derive(Debug, Clone, Default)]
pub(super) struct FileFacts {
    pub(super) path: PathBuf,
    pub(super) format: String,
    pub(super) bytes: u64,
    pub(super) damages: Vec<(u64, String)>,
}

/// Capture point: an interface of a track.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) name: Option<Arc<str>>,
    pub(super) file: usize,
    pub(super) interface: u32,
}

struct Waiting {
    file: usize,
    first_ns: u64,
    len: Option<u64>,
    /// Open source of a file that cannot be opened twice, with its first batch.
    opened: Option<(Source, Load)>,
}

struct Active {
    file: usize,
    track: usize,
    source: Source,
    /// Batch that was read to find the file's first packet.
    begun: Option<Load>,
    /// Time of the latest packet so far.
    until_ns: u64,
}

/// Files that continue each other (a rotated capture).
struct Track {
    interfaces: Vec<Described>,
    vantages: Arc<Vec<CapturePoint>>,
    first_ns: u64,
    last_ns: u64,
    /// True if none of its files is open.
    free: bool,
}

/// Identity of an interface across files.
type Described = (Option<Arc<str>>, LinkType);

impl Sources {
    /// Reads the beginning of every file.
    ///
    /// # Errors
    /// A file cannot be read or is not a capture: a refusal that names it.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self> {
        let glance = |(file, path): (usize, &PathBuf)| Waiting::glance(file, path);
        let waiting: Result<Vec<_>> = paths.iter().enumerate().map(glance).collect();
        let mut waiting = waiting?;
        waiting.sort_by_key(|file| file.first_ns);
        let facts = |path: &PathBuf| FileFacts {
            path: path.clone(),
            ..FileFacts::default()
        };
        Ok(Self {
            waiting: waiting.into(),
            active: Vec::new(),
            tracks: Vec::new(),
            places: Vec::new(),
            files: paths.iter().map(facts).collect(),
            packets: 0,
            mixed: false,
            ended: false,
        })
    }

    /// Fills a batch with the next records; the last batch has none. Returns false after the last.
    ///
    /// # Errors
    /// A file changed since it was first opened.
    pub(super) fn next(&mut self, load: &mut Load) -> Result<bool> {
        loop {
            load.clear();
            self.begin_what_is_due()?;
            let Some(behind) = self.behind() else {
                load.last = !self.ended;
                load.places = self.files.len() > 1 || self.places.len() > 1;
                return Ok(!std::mem::replace(&mut self.ended, true));
            };
            self.fill(behind, load)?;
            if !load.pieces.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Returns the index of the open file with the earliest time.
    fn behind(&self) -> Option<usize> {
        let until = |at: &usize| self.active[*at].until_ns;
        (0..self.active.len()).min_by_key(until)
    }

    fn begin_what_is_due(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.front() {
            let behind = self.active.iter().map(|file| file.until_ns).min();
            if behind.is_some_and(|behind| behind < next.first_ns) {
                return Ok(());
            }
            if let Some(next) = self.waiting.pop_front() {
                self.begin(next)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, next: Waiting) -> Result<()> {
        let (source, begun) = match next.opened {
            Some((source, load)) => (source, Some(load)),
            None => (Source::open(&self.files[next.file].path)?, None),
        };
        let mut active = Active {
            file: next.file,
            track: 0,
            source,
            begun,
            until_ns: next.first_ns,
        };
        if active.begun.is_none() {
            let mut load = Load::default();
            active.source.fill(&mut load)?;
            active.begun = Some(load);
        }
        active.track = self.track(&active, next.first_ns);
        self.mixed |= !self.active.is_empty();
        self.active.push(active);
        Ok(())
    }

    /// Returns the track that a file continues, or a new one.
    fn track(&mut self, file: &Active, first_ns: u64) -> usize {
        let interfaces = described(file.source.interfaces());
        let continues = |track: &Track| {
            let both = track.interfaces.len().min(interfaces.len());
            track.free
                && track.interfaces[..both] == interfaces[..both]
                && track.last_ns <= first_ns.saturating_add(track.overlap_ns())
        };
        let tracks = self.tracks.iter().enumerate();
        let found = tracks.filter(|(_, track)| continues(track));
        let found = found
            .max_by_key(|(_, track)| track.last_ns)
            .map(|(at, _)| at);
        found.unwrap_or_else(|| {
            self.tracks.push(Track {
                interfaces: Vec::new(),
                vantages: Arc::default(),
                first_ns,
                last_ns: 0,
                free: false,
            });
            self.tracks.len() - 1
        })
    }

    fn fill(&mut self, at: usize, load: &mut Load) -> Result<()> {
        let active = &mut self.active[at];
        match active.begun.take() {
            Some(begun) => *load = begun,
            None => active.source.fill(load)?,
        }
        load.file = active.file;
        load.first_packet = self.packets + 1;
        self.packets += load
            .pieces
            .iter()
            .map(|piece| piece.run.packets)
            .sum::<u64>();
        self.recognise(at);
        self.take_note(at);
        load.places = self.files.len() > 1 || self.places.len() > 1;
        load.vantages = Arc::clone(&self.tracks[self.active[at].track].vantages);
        self.set_times(at, load);
        if self.active[at].source.is_over() {
            self.end(at);
        }
        Ok(())
    }

    /// Adds the new interfaces of a file to its track.
    fn recognise(&mut self, at: usize) {
        let active = &self.active[at];
        let track = &mut self.tracks[active.track];
        track.free = false;
        let known = track.interfaces.len();
        for (number, interface) in active.source.interfaces().iter().enumerate().skip(known) {
            track
                .interfaces
                .push((interface.name.clone(), interface.link_type));
            Arc::make_mut(&mut track.vantages).push(CapturePoint(self.places.len() as u32));
            self.places.push(Place {
                name: interface.name.clone(),
                file: active.file,
                interface: number as u32,
            });
        }
    }

    fn take_note(&mut self, at: usize) {
        let active = &mut self.active[at];
        let facts = &mut self.files[active.file];
        facts.bytes = active.source.offset();
        facts.format = active.source.format();
        facts.damages.append(&mut active.source.damages());
    }

    /// Updates the time up to which all files are read. A single file needs no such time.
    fn set_times(&mut self, at: usize, load: &mut Load) {
        if self.files.len() == 1 {
            return;
        }
        let active = &mut self.active[at];
        let until = source::times(load).map_or(0, |(_, last)| last);
        active.until_ns = active.until_ns.max(until);
        let track = &mut self.tracks[active.track];
        track.last_ns = track.last_ns.max(active.until_ns);
        let next = self.waiting.front().map(|file| file.first_ns);
        let under_way = self.active.iter().filter(|file| !file.source.is_over());
        let complete = under_way.map(|file| file.until_ns).chain(next).min();
        self.mixed |= next.is_some_and(|next| next <= until);
        load.mixed = self.mixed;
        load.complete_ns = complete.unwrap_or(u64::MAX);
    }

    fn end(&mut self, at: usize) {
        let active = self.active.swap_remove(at);
        self.tracks[active.track].free = true;
    }

    /// Returns the total number of bytes, if it is known: not for compressed files and pipes.
    pub(super) fn len(&self) -> Option<u64> {
        self.waiting.iter().map(|file| file.len).sum()
    }

    /// Returns whether there is only one file.
    pub(super) fn is_one_file(&self) -> bool {
        self.files.len() == 1
    }

    /// Returns the number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the facts of all files, and the capture points.
    pub(super) fn close(self) -> (Vec<FileFacts>, Vec<Place>) {
        (self.files, self.places)
    }
}

impl Track {
    fn overlap_ns(&self) -> u64 {
        (self.last_ns.saturating_sub(self.first_ns) / 100).min(OVERLAP_NS)
    }
}

impl Waiting {
    /// Reads the first batch to find the time of the first packet. A regular file is closed again, so that
    /// thousands of files need no descriptor.
    fn glance(file: usize, path: &Path) -> Result<Self> {
        let mut source = Source::open(path)?;
        let mut load = Load::default();
        source.fill(&mut load)?;
        let first_ns = source::times(&load).map_or(u64::MAX, |(first, _)| first);
        let len = source.len();
        let opened = (!source.is_file()).then_some((source, load));
        Ok(Self {
            file,
            first_ns,
            len,
            opened,
        })
    }
}

fn described(interfaces: &[Interface]) -> Vec<Described> {
    let known = |one: &Interface| (one.name.clone(), one.link_type);
    interfaces.iter().map(known).collect()
}
