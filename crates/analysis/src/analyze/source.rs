// SPDX-License-Identifier: MIT OR Apache-2.0
//! One capture file while it is read: bytes in, whole records out.

use super::{
    input::Input,
    load::{Load, Piece},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_packet::capture::{Damage, Interface, Reader, Record, Step};
use std::path::{Path, PathBuf};

/// What is read at once. With what is made of it, it fits the cache of a core.
const CHUNK: usize = 256 << 10;

/// A capture file, some way through.
pub(super) struct Source {
    path: PathBuf,
    input: Input,
    reader: Reader,
    /// Bytes of a record whose end was not read yet.
    rest: Vec<u8>,
    /// The input has nothing more.
    dry: bool,
    /// Nor has `rest`.
    over: bool,
    /// What could not be read.
    damages: Vec<Damage>,
    /// Why the input ended before its end: packed data that is damaged.
    broken: Option<std::io::Error>,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read: a refusal that names it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            input: Input::open(path)?,
            reader: Reader::new(),
            rest: Vec::new(),
            dry: false,
            over: false,
            damages: Vec::new(),
            broken: None,
        })
    }

    /// Fills a load with the next records. It has none only if the file is over.
    ///
    /// # Errors
    /// The file is not a capture: a refusal that names it.
    pub(super) fn fill(&mut self, load: &mut Load) -> Result<()> {
        let bytes = &mut load.bytes;
        let mut filled = self.rest.len();
        bytes.resize(CHUNK.max(bytes.len()).max(filled), 0);
        bytes[..filled].copy_from_slice(&self.rest);
        loop {
            filled += self.read(&mut bytes[filled..]);
            let (at, need) = self.step_through(&bytes[..filled], &mut load.pieces)?;
            if self.over || !load.pieces.is_empty() {
                self.rest.clear();
                self.rest.extend_from_slice(&bytes[at..filled]);
                return Ok(());
            }
            bytes.copy_within(at..filled, 0);
            filled -= at;
            let full = filled == bytes.len();
            bytes.resize(bytes.len().max(need) + if full { CHUNK } else { 0 }, 0);
        }
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let read = self.input.fill(into).unwrap_or_else(|error| {
            self.broken = Some(error);
            0
        });
        self.dry |= read < into.len();
        read
    }

    /// Goes over the bytes as far as they say something: how far, and how many more it takes to go on.
    fn step_through(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Result<(usize, usize)> {
        let mut at = 0;
        loop {
            let step = self.reader.step(&bytes[at..], self.dry);
            let step = step.map_err(|reason| self.refusal(reason))?;
            let from = at;
            at += step.taken();
            match step {
                Step::Run(run) => pieces.push(Piece {
                    run,
                    place: from..at,
                }),
                Step::Damage(_, damage) => self.damages.push(damage),
                Step::Skip(_) => {}
                Step::More(need) => return Ok((at, need)),
                Step::End => {
                    self.over = true;
                    return Ok((at, 0));
                }
            }
        }
    }
}

impl Source {
    /// Nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// What the file has described so far.
    pub(super) fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    /// Bytes of records so far, unpacked.
    pub(super) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// Length of the file, where it says anything about how much is left.
    pub(super) fn len(&self) -> Option<u64> {
        self.input.len
    }

    /// Whether it could be opened again from its beginning.
    pub(super) fn is_file(&self) -> bool {
        self.input.is_file
    }

    /// `pcap` or `pcapng`, and what it was packed with.
    pub(super) fn format(&self) -> String {
        let format = self.reader.format().unwrap_or("pcap");
        let packed = self.input.packed.map(|how| format!(", {how}"));
        format!("{format}{}", packed.unwrap_or_default())
    }

    /// What could not be read since the last time that this was asked, where and why.
    pub(super) fn damages(&mut self) -> Vec<(u64, String)> {
        let broken = self.broken.take().map(|error| {
            let at = self.reader.offset();
            (at, format!("cannot be read any further: {error}"))
        });
        let told = |damage: Damage| (damage.at, damage.to_string());
        self.damages.drain(..).map(told).chain(broken).collect()
    }

    fn refusal(&self, reason: impl std::fmt::Display) -> anyhow::Error {
        let why = self.broken.as_ref().map(|error| format!(" ({error})"));
        let why = why.unwrap_or_default();
        Refusal::usage(format!("{}: {reason}{why}", self.path.display()))
    }
}

/// Times of the first and the last packet in a load.
pub(super) fn times(load: &Load) -> Option<(u64, u64)> {
    let records = |piece: &'_ Piece| {
        let bytes = &load.bytes[piece.place.clone()];
        let times = piece.run.records(bytes).filter_map(|record| match record {
            Record::Frame(frame) => Some(frame.at_ns),
            _ => None,
        });
        times.fold(None, span)
    };
    let mut spans = load.pieces.iter().filter_map(records);
    let first = spans.next()?;
    Some(spans.fold(first, |seen, next| (seen.0, seen.1.max(next.1))))
}

/// The first time that was seen, and the latest.
pub(super) fn span(seen: Option<(u64, u64)>, at: u64) -> Option<(u64, u64)> {
    Some(seen.map_or((at, at), |(first, last)| (first, last.max(at))))
}
