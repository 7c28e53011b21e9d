// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--capture FILE`: records each segment at both ends of the link, as a capture there would, with the times of the model.
//!
//! ```text
//! ForwardingLoop: SegmentRecorder (fills a RecordBuffer) ── bounded channel of buffers ── thread: RecordMerger (by time) ── pcapng
//! ```
//!
//! The forwarding loop only stores records and never waits: without a free buffer, records are dropped and counted.
//! docs/tap-format.md describes the file.

mod merger;
mod pcapng_writer;
mod record_buffer;
mod segment_recorder;

use super::counters::{Direction, TimingReport};
use anyhow::{Context, Result};
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_linux::clock;
use longhaul_units::Bytes;
use pcapng_writer::PcapngWriter;
pub(super) use segment_recorder::SegmentRecorder;
use std::{
    fs::File,
    path::PathBuf,
    sync::mpsc::{channel, sync_channel},
    thread::{self, JoinHandle},
};

/// Options of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaptureOptions {
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Most header bytes that are recorded of a segment.
    pub(super) snap_length: u32,
    /// Memory for records that are not written yet, both directions together.
    pub(super) memory: Bytes,
}

/// Least header bytes of a segment (IPv4 and TCP without options).
const SNAP_LENGTH_MIN: u32 = 40;
/// Most header bytes of a super-packet (`longhaul_packet::super_packet`).
const SNAP_LENGTH_MAX: u32 = 256;
/// Least number of buffers of one direction: one that fills, one that is written, and as many between.
const BUFFERS_MIN: usize = 4;
/// Most memory for records: the channel has a slot for each buffer from the start.
const MEMORY_MAX: Bytes = Bytes::new(64_000_000_000);

impl CaptureOptions {
    /// Checks the options.
    pub(super) fn check(&self) -> Result<()> {
        if !(SNAP_LENGTH_MIN..=SNAP_LENGTH_MAX).contains(&self.snap_length) {
            let text = format!(
                "snap-length {}: {SNAP_LENGTH_MIN} to {SNAP_LENGTH_MAX} bytes of headers",
                self.snap_length
            );
            return Err(Refusal::option("snap-length", text));
        }
        if self.buffers_max() < BUFFERS_MIN || self.memory > MEMORY_MAX {
            let text = format!(
                "capture-memory {}: at least {}, at most {MEMORY_MAX}",
                self.memory,
                Bytes::new((2 * BUFFERS_MIN * record_buffer::BUFFER_BYTES) as u64)
            );
            return Err(Refusal::option("capture-memory", text));
        }
        Ok(())
    }

    /// Opens the file without truncating it, so that a link that fails to start does not lose an old file.
    pub(super) fn open(&self) -> Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        options.open(&self.path).map_err(|error| {
            let path = self.path.display();
            Refusal::usage(format!("cannot write a capture to {path}: {error}"))
        })
    }

    /// Returns the number of buffers of each direction.
    fn buffers_max(&self) -> usize {
        self.memory.get() as usize / 2 / record_buffer::BUFFER_BYTES
    }
}

/// File that a link records its segments to.
pub(super) struct Capture {
    path: PathBuf,
    writer: JoinHandle<PcapngWriter>,
}

impl Capture {
    /// Starts the writer with an empty file; returns the segment recorders of both directions, forward first.
    pub(super) fn start(
        options: &CaptureOptions,
        file: File,
    ) -> Result<(Self, [SegmentRecorder; 2])> {
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let buffers_max = options.buffers_max();
        let (full, inbox) = sync_channel(2 * buffers_max);
        let (forward_spare, forward) = channel();
        let (backward_spare, backward) = channel();
        let recorders = [
            SegmentRecorder::new(Direction::Forward, full.clone(), forward, buffers_max),
            SegmentRecorder::new(Direction::Backward, full, backward, buffers_max),
        ];
        let epoch_offset = clock::wall() - clock::now();
        let spare = [forward_spare, backward_spare];
        let writer = PcapngWriter::start(
            file,
            options.snap_length,
            epoch_offset,
            inbox,
            spare,
            buffers_max / 2,
        )
        .with_context(|| format!("cannot write {}", options.path.display()))?;
        let capture = Self {
            path: options.path.clone(),
            writer: thread::Builder::new()
                .name("capture".to_owned())
                .spawn(|| writer.run())?,
        };
        Ok((capture, recorders))
    }

    /// Finishes the file with the reports of each direction, once both recorders are dropped.
    pub(super) fn finish(self, reports: &[TimingReport]) -> Result<()> {
        let writer = self.writer.join();
        let mut writer = writer.map_err(|_| anyhow::anyhow!("the capture's thread panicked"))?;
        let [written, dropped] = writer.finish(reports, clock::now());
        errln!(
            "capture {}: {written} records, {dropped} dropped",
            self.path.display()
        );
        writer
            .write_error()
            .map_or(Ok(()), Err)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
