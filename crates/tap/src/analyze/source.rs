// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source: one capture file while it is read, from bytes to complete records.

use super::{
    batch::{Batch, RecordRun},
    input::Input,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_packet::capture::{
    DamagedRange, FormatError, Interface, OddTimes, Reader, Record, Step,
};
use std::path::{Path, PathBuf};

/// Bytes per read. Together with the segments decoded from them, they fit in the cache of a core.
const READ_LEN: usize = 256 << 10;

/// Capture file that is being read.
pub(super) struct Source {
    path: PathBuf,
    input: Input,
    reader: Reader,
    /// First bytes of a record whose end was not read yet.
    partial_record: Vec<u8>,
    /// True at the end of the input.
    input_ended: bool,
    /// True when `partial_record` has no more records, either.
    finished: bool,
    /// Damages found since the last call of [`Source::take_damages`].
    damages: Vec<DamagedRange>,
    /// Read error that ended the input early, for instance damaged compressed data.
    read_error: Option<std::io::Error>,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read: a refusal that names it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            input: Input::open(path)?,
            reader: Reader::new(),
            partial_record: Vec::new(),
            input_ended: false,
            finished: false,
            damages: Vec::new(),
            read_error: None,
        })
    }

    /// Fills a batch with the next records. The batch stays empty only at the end of the file.
    ///
    /// # Errors
    /// The file is not a capture: a refusal that names it.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> Result<()> {
        let bytes = &mut batch.bytes;
        let mut filled = self.partial_record.len();
        bytes.resize(READ_LEN.max(bytes.len()).max(filled), 0);
        bytes[..filled].copy_from_slice(&self.partial_record);
        loop {
            filled += self.read(&mut bytes[filled..]);
            let (at, need) = self.parse(&bytes[..filled], &mut batch.runs)?;
            if self.finished || !batch.runs.is_empty() {
                self.partial_record.clear();
                self.partial_record.extend_from_slice(&bytes[at..filled]);
                return Ok(());
            }
            bytes.copy_within(at..filled, 0);
            filled -= at;
            let full = filled == bytes.len();
            bytes.resize(bytes.len().max(need) + if full { READ_LEN } else { 0 }, 0);
        }
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let (read, error) = self.input.fill(into);
        self.read_error = error.or(self.read_error.take());
        self.input_ended |= read < into.len();
        read
    }

    /// Parses the complete records in `bytes`. Returns how far it came and how many bytes the next record needs.
    fn parse(&mut self, bytes: &[u8], runs: &mut Vec<RecordRun>) -> Result<(usize, usize)> {
        let mut at = 0;
        loop {
            let step = self.reader.step(&bytes[at..], self.input_ended);
            let step = step.map_err(|reason| self.refusal(reason))?;
            let from = at;
            at += step.taken();
            match step {
                Step::Run(run) => runs.push(RecordRun {
                    run,
                    range: from..at,
                }),
                Step::Damage(_, damage) => self.damages.push(damage),
                Step::Skip(_) => {}
                Step::More(need) => return Ok((at, need)),
                Step::End => {
                    self.finished = true;
                    return Ok((at, 0));
                }
            }
        }
    }
}

impl Source {
    /// Returns whether all records were read.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the interfaces that the file has described so far.
    pub(super) fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    /// Returns the bytes of records so far, uncompressed.
    pub(super) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// Returns the length of the file, if it is known and the file is not compressed.
    pub(super) fn len(&self) -> Option<u64> {
        self.input.len
    }

    /// Returns whether the file can be opened again from its beginning.
    pub(super) fn is_file(&self) -> bool {
        self.input.is_file
    }

    /// Returns the format, `pcap` or `pcapng`, and the compression.
    pub(super) fn format(&self) -> String {
        let format = self.reader.format().unwrap_or("pcap");
        let packed = self.input.compression.map(|how| format!(", {how}"));
        format!("{format}{}", packed.unwrap_or_default())
    }

    /// Returns position and text of the damages since the last call.
    pub(super) fn take_damages(&mut self) -> Vec<(u64, String)> {
        let broken = self.read_error.take().map(|error| {
            let at = self.reader.offset();
            (at, format!("cannot be read any further: {error}"))
        });
        let located = |damage: DamagedRange| (damage.at, damage.to_string());
        self.damages.drain(..).map(located).chain(broken).collect()
    }

    /// Returns the odd times so far.
    pub(super) fn odd_times(&self) -> OddTimes {
        self.reader.odd_times()
    }

    fn refusal(&self, reason: FormatError) -> anyhow::Error {
        let path = self.path.display();
        Refusal::usage(match (&self.read_error, reason) {
            (Some(error), FormatError::Empty) => format!("{path}: cannot be read: {error}"),
            (Some(error), reason) => format!("{path}: {reason} ({error})"),
            (None, reason) => format!("{path}: {reason}"),
        })
    }
}

/// Returns the times of the first and the last packet in a batch.
pub(super) fn time_span(batch: &Batch) -> Option<(u64, u64)> {
    let records = |records: &'_ RecordRun| {
        let bytes = &batch.bytes[records.range.clone()];
        let times = records
            .run
            .records(bytes)
            .filter_map(|record| match record {
                Record::Frame(frame) => Some(frame.timestamp_ns),
                _ => None,
            });
        times.fold(None, extend_span)
    };
    let mut spans = batch.runs.iter().filter_map(records);
    let first = spans.next()?;
    Some(spans.fold(first, |seen, next| (seen.0, seen.1.max(next.1))))
}

/// Extends a span of first and latest time by `at`.
pub(super) fn extend_span(seen: Option<(u64, u64)>, at: u64) -> Option<(u64, u64)> {
    Some(seen.map_or((at, at), |(first, last)| (first, last.max(at))))
}
