// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--tap FILE`: what a capture at each end would have, segment by segment, with the model's own times.
//!
//! ```text
//! pump: Point (notes in a Block) ── bounded ring of blocks ── thread: Merge (by time) ── pcapng
//! ```
//!
//! The pump only takes notes and never waits: without a free block, notes are missed and counted.
//! docs/tap-format.md says what is in the file.

mod merger;
mod pcapng_writer;
mod record_buffer;
mod tap_point;

use super::counters::{Direction, TimingReport};
use anyhow::{Context, Result};
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_linux::clock;
use longhaul_units::Bytes;
use pcapng_writer::PcapngWriter;
use std::{
    fs::File,
    path::PathBuf,
    sync::mpsc::{channel, sync_channel},
    thread::{self, JoinHandle},
};
pub(super) use tap_point::TapPoint;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TapOptions {
    /// The file.
    pub(super) path: PathBuf,
    /// Most header bytes that are kept of a segment.
    pub(super) snap: u32,
    /// What may wait for the disk, both directions together.
    pub(super) memory: Bytes,
}

/// Headers are at least that long (IPv4 and TCP without options).
const SNAP_MIN: u32 = 40;
/// Longer headers no super-packet has (`longhaul_packet::super_packet`).
const SNAP_MAX: u32 = 256;
/// Of one direction: one block that fills, one that is written, and as many between.
const BUFFERS_MIN: usize = 4;
/// A place for each block is made at the start.
const MEMORY_MAX: Bytes = Bytes::new(64_000_000_000);

impl TapOptions {
    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        if !(SNAP_MIN..=SNAP_MAX).contains(&self.snap) {
            return Err(Refusal::usage(format!(
                "tap-snap {}: {SNAP_MIN} to {SNAP_MAX} bytes of headers",
                self.snap
            )));
        }
        if self.buffers_max() < BUFFERS_MIN || self.memory > MEMORY_MAX {
            return Err(Refusal::usage(format!(
                "tap-memory {}: at least {}, at most {MEMORY_MAX}",
                self.memory,
                Bytes::new((2 * BUFFERS_MIN * record_buffer::BUFFER_BYTES) as u64)
            )));
        }
        Ok(())
    }

    /// Its file, with what is in it: a link that can't start after all empties nothing.
    pub(super) fn open(&self) -> Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        options.open(&self.path).map_err(|error| {
            let path = self.path.display();
            Refusal::usage(format!("cannot write a tap to {path}: {error}"))
        })
    }

    /// For each direction.
    fn buffers_max(&self) -> usize {
        self.memory.get() as usize / 2 / record_buffer::BUFFER_BYTES
    }
}

/// A file that a link writes its segments to.
pub(super) struct Tap {
    path: PathBuf,
    writer: JoinHandle<PcapngWriter>,
}

impl Tap {
    /// Begins a file anew and returns the tap points of both directions, forward first.
    pub(super) fn start(plan: &TapOptions, file: File) -> Result<(Self, [TapPoint; 2])> {
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let most = plan.buffers_max();
        let (full, inbox) = sync_channel(2 * most);
        let (give_forward, forward) = channel();
        let (give_backward, backward) = channel();
        let points = [
            TapPoint::new(Direction::Forward, full.clone(), forward, most),
            TapPoint::new(Direction::Backward, full, backward, most),
        ];
        let since_1970 = clock::wall() - clock::now();
        let spare = [give_forward, give_backward];
        let scribe = PcapngWriter::start(file, plan.snap, since_1970, inbox, spare, most / 2)
            .with_context(|| format!("cannot write {}", plan.path.display()))?;
        let tap = Self {
            path: plan.path.clone(),
            writer: thread::Builder::new()
                .name("tap".to_owned())
                .spawn(|| scribe.run())?,
        };
        Ok((tap, points))
    }

    /// Ends the file, once both points are gone, with what is to be said of each direction.
    pub(super) fn finish(self, checks: &[TimingReport]) -> Result<()> {
        let scribe = self.writer.join();
        let mut scribe = scribe.map_err(|_| anyhow::anyhow!("the tap's thread panicked"))?;
        let [written, missed] = scribe.finish(checks, clock::now());
        errln!(
            "tap {}: {written} records, {missed} missing",
            self.path.display()
        );
        scribe
            .write_error()
            .map_or(Ok(()), Err)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
