// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merge of all files of an analysis into one stream of batches.
//!
//! A file is opened when the time of its first packet has come. Of several open files, the one with the earliest
//! time is read next, so at most one batch of each waits for the others. A file that begins after another with the
//! same interfaces ended is its continuation (a rotated capture). Otherwise it was captured at another point.

use super::{
    batch::Batch,
    source::{self, Source},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_flow::segment::CapturePoint;
use longhaul_packet::capture::{Interface, LinkType, OddTimes};
use std::{
    collections::{HashMap, VecDeque},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum time by which a continuation may begin before the last packet of the file before it, because captures
/// of several interfaces are not strictly in order. A hundredth of that file's length is a second limit.
const OVERLAP_NS: u64 = 1_000_000_000;

/// Files of an analysis, some of them open.
pub(super) struct Sources {
    /// Files that are not open yet, in order of their first packets.
    pending: VecDeque<PendingFile>,
    open: Vec<OpenFile>,
    sequences: Vec<FileSequence>,
    /// Interfaces of all sequences.
    capture_interfaces: Vec<CaptureInterface>,
    /// Information about each file, in the order of the command line.
    files: Vec<FileInfo>,
    packets: u64,
    /// True after files overlapped in time.
    overlapping: bool,
    ended: bool,
}

/// Information about a file that reading it finds.
#[derive(Debug, Clone, Default)]
pub(super) struct FileInfo {
    pub(super) path: PathBuf,
    pub(super) format: String,
    pub(super) bytes: u64,
    pub(super) damages: Vec<(u64, String)>,
    pub(super) odd_times: OddTimes,
}

/// Interface of a sequence of files: a capture point.
#[derive(Debug, Clone)]
pub(super) struct CaptureInterface {
    pub(super) name: Option<Arc<str>>,
    pub(super) file: usize,
    pub(super) number: u32,
}

struct PendingFile {
    file: usize,
    first_ns: u64,
    len: Option<u64>,
    /// Open source of a file that cannot be opened twice, with its first batch.
    opened: Option<(Source, Batch)>,
}

struct OpenFile {
    file: usize,
    sequence: usize,
    source: Source,
    /// Batch that was read to find the file's first packet.
    first_batch: Option<Batch>,
    /// Time of the latest packet so far.
    latest_ns: u64,
}

/// Files that continue each other (a rotated capture).
struct FileSequence {
    interfaces: Vec<InterfaceIdentity>,
    capture_points: Arc<Vec<CapturePoint>>,
    first_ns: u64,
    last_ns: u64,
    /// True if none of its files is open.
    idle: bool,
}

/// Identity of an interface across files.
type InterfaceIdentity = (Option<Arc<str>>, LinkType);

impl Sources {
    /// Reads the beginning of every file.
    ///
    /// # Errors
    /// A file cannot be read, is not a capture, or is named twice: a refusal that names it.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self> {
        refuse_repeated_files(paths)?;
        let inspect = |(file, path): (usize, &PathBuf)| PendingFile::inspect(file, path);
        let pending: Result<Vec<_>> = paths.iter().enumerate().map(inspect).collect();
        let mut pending = pending?;
        pending.sort_by_key(|file| file.first_ns);
        let info = |path: &PathBuf| FileInfo {
            path: path.clone(),
            ..FileInfo::default()
        };
        Ok(Self {
            pending: pending.into(),
            open: Vec::new(),
            sequences: Vec::new(),
            capture_interfaces: Vec::new(),
            files: paths.iter().map(info).collect(),
            packets: 0,
            overlapping: false,
            ended: false,
        })
    }

    /// Fills a batch with the next records; the last batch has none. Returns false after the last.
    ///
    /// # Errors
    /// A file changed since it was first opened.
    pub(super) fn next(&mut self, batch: &mut Batch) -> Result<bool> {
        loop {
            batch.clear();
            self.open_due_files()?;
            let Some(earliest) = self.earliest_file() else {
                batch.last = !self.ended;
                batch.multiple_points = self.files.len() > 1 || self.capture_interfaces.len() > 1;
                return Ok(!std::mem::replace(&mut self.ended, true));
            };
            self.fill(earliest, batch)?;
            if !batch.runs.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Returns the index of the open file with the earliest time.
    fn earliest_file(&self) -> Option<usize> {
        let until = |at: &usize| self.open[*at].latest_ns;
        (0..self.open.len()).min_by_key(until)
    }

    fn open_due_files(&mut self) -> Result<()> {
        while let Some(next) = self.pending.front() {
            let earliest_ns = self.open.iter().map(|file| file.latest_ns).min();
            if earliest_ns.is_some_and(|ns| ns < next.first_ns) {
                return Ok(());
            }
            if let Some(next) = self.pending.pop_front() {
                self.open_file(next)?;
            }
        }
        Ok(())
    }

    fn open_file(&mut self, next: PendingFile) -> Result<()> {
        let (source, first_batch) = match next.opened {
            Some((source, batch)) => (source, Some(batch)),
            None => (Source::open(&self.files[next.file].path)?, None),
        };
        let mut opened = OpenFile {
            file: next.file,
            sequence: 0,
            source,
            first_batch,
            latest_ns: next.first_ns,
        };
        if opened.first_batch.is_none() {
            let mut batch = Batch::default();
            opened.source.fill(&mut batch)?;
            opened.first_batch = Some(batch);
        }
        opened.sequence = self.find_sequence(&opened, next.first_ns);
        self.overlapping |= !self.open.is_empty();
        self.open.push(opened);
        Ok(())
    }

    /// Returns the sequence that a file continues, or a new one.
    fn find_sequence(&mut self, file: &OpenFile, first_ns: u64) -> usize {
        let interfaces = identities(file.source.interfaces());
        let continues = |sequence: &FileSequence| {
            let common_count = sequence.interfaces.len().min(interfaces.len());
            sequence.idle
                && sequence.interfaces[..common_count] == interfaces[..common_count]
                && sequence.last_ns <= first_ns.saturating_add(sequence.overlap_ns())
        };
        let sequences = self.sequences.iter().enumerate();
        let best = sequences.filter(|(_, sequence)| continues(sequence));
        let best = best
            .max_by_key(|(_, sequence)| sequence.last_ns)
            .map(|(at, _)| at);
        best.unwrap_or_else(|| {
            self.sequences.push(FileSequence {
                interfaces: Vec::new(),
                capture_points: Arc::default(),
                first_ns,
                last_ns: 0,
                idle: false,
            });
            self.sequences.len() - 1
        })
    }

    fn fill(&mut self, at: usize, batch: &mut Batch) -> Result<()> {
        let file = &mut self.open[at];
        match file.first_batch.take() {
            Some(first_batch) => *batch = first_batch,
            None => file.source.fill(batch)?,
        }
        batch.file = file.file;
        batch.first_packet = self.packets + 1;
        self.packets += batch
            .runs
            .iter()
            .map(|records| records.run.packets)
            .sum::<u64>();
        self.register_interfaces(at);
        self.update_file_info(at);
        batch.multiple_points = self.files.len() > 1 || self.capture_interfaces.len() > 1;
        batch.capture_points = Arc::clone(&self.sequences[self.open[at].sequence].capture_points);
        self.update_times(at, batch);
        if self.open[at].source.is_finished() {
            self.close_file(at);
        }
        Ok(())
    }

    /// Adds the new interfaces of a file to its sequence.
    fn register_interfaces(&mut self, at: usize) {
        let file = &self.open[at];
        let sequence = &mut self.sequences[file.sequence];
        sequence.idle = false;
        let known_count = sequence.interfaces.len();
        for (number, interface) in file
            .source
            .interfaces()
            .iter()
            .enumerate()
            .skip(known_count)
        {
            sequence
                .interfaces
                .push((interface.name.clone(), interface.link_type));
            Arc::make_mut(&mut sequence.capture_points)
                .push(CapturePoint(self.capture_interfaces.len() as u32));
            self.capture_interfaces.push(CaptureInterface {
                name: interface.name.clone(),
                file: file.file,
                number: number as u32,
            });
        }
    }

    fn update_file_info(&mut self, at: usize) {
        let file = &mut self.open[at];
        let info = &mut self.files[file.file];
        info.bytes = file.source.offset();
        info.format = file.source.format();
        info.damages.append(&mut file.source.take_damages());
        info.odd_times = file.source.odd_times();
    }

    /// Updates the time up to which all files are read. A single file needs no such time.
    fn update_times(&mut self, at: usize, batch: &mut Batch) {
        if self.files.len() == 1 {
            return;
        }
        let file = &mut self.open[at];
        let until = source::time_span(batch).map_or(0, |(_, last)| last);
        file.latest_ns = file.latest_ns.max(until);
        let sequence = &mut self.sequences[file.sequence];
        sequence.last_ns = sequence.last_ns.max(file.latest_ns);
        let next = self.pending.front().map(|file| file.first_ns);
        let unfinished = self.open.iter().filter(|file| !file.source.is_finished());
        let complete = unfinished.map(|file| file.latest_ns).chain(next).min();
        self.overlapping |= next.is_some_and(|next| next <= until);
        batch.overlapping = self.overlapping;
        batch.complete_until_ns = complete.unwrap_or(u64::MAX);
    }

    fn close_file(&mut self, at: usize) {
        let file = self.open.swap_remove(at);
        self.sequences[file.sequence].idle = true;
    }

    /// Returns the total number of bytes, if it is known: not for compressed files and pipes.
    pub(super) fn len(&self) -> Option<u64> {
        self.pending.iter().map(|file| file.len).sum()
    }

    /// Returns whether there is only one file.
    pub(super) fn is_one_file(&self) -> bool {
        self.files.len() == 1
    }

    /// Returns the number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the information about all files, and the capture points.
    pub(super) fn into_file_info(self) -> (Vec<FileInfo>, Vec<CaptureInterface>) {
        (self.files, self.capture_interfaces)
    }
}

impl FileSequence {
    fn overlap_ns(&self) -> u64 {
        (self.last_ns.saturating_sub(self.first_ns) / 100).min(OVERLAP_NS)
    }
}

impl PendingFile {
    /// Reads the first batch to find the time of the first packet. A regular file is closed again, so that
    /// thousands of files need no descriptor.
    fn inspect(file: usize, path: &Path) -> Result<Self> {
        let mut source = Source::open(path)?;
        let mut batch = Batch::default();
        source.fill(&mut batch)?;
        let first_ns = source::time_span(&batch).map_or(u64::MAX, |(first, _)| first);
        let len = source.len();
        let opened = (!source.is_file()).then_some((source, batch));
        Ok(Self {
            file,
            first_ns,
            len,
            opened,
        })
    }
}

/// Refuses a file that is named twice: it would pass for a second capture point without any delay.
fn refuse_repeated_files(paths: &[PathBuf]) -> Result<()> {
    let mut known = HashMap::new();
    for path in paths {
        let Ok(meta) = std::fs::metadata(path) else {
            continue; // Standard input, or an error that opening it reports.
        };
        if let Some(first) = known.insert((meta.dev(), meta.ino()), path) {
            let (first, path) = (first.display(), path.display());
            return Err(Refusal::usage(format!(
                "{first} and {path} are one file; name each capture once"
            )));
        }
    }
    Ok(())
}

fn identities(interfaces: &[Interface]) -> Vec<InterfaceIdentity> {
    let identity = |one: &Interface| (one.name.clone(), one.link_type);
    interfaces.iter().map(identity).collect()
}
