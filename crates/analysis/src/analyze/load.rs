// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch of work of the pool: records of one file, their segments, and the output of the shards.

use super::crew::SHARDS;
use crate::{report::Output, series::Row};
use longhaul_flow::{
    Sink,
    bin::Bin,
    record::{Flow, TwoPointComparison},
    segment::{CapturePoint, CapturedSegment},
};
use longhaul_packet::capture::{DamagedRange, Run, Statistics};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Complete records of one file. All memory is recycled: after the first few batches nothing is allocated.
///
/// Memory: the bytes (256 KiB, up to 20 MiB if a record is that long), 144 bytes for each packet in them, and
/// the output of the shards. A batch has usually 2,500 packets, and at most 16,000 (empty packets only).
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Index of the file, in the order of the command line.
    pub(super) file: usize,
    /// True for the last batch of the capture: it has no bytes, and the shards finish all flows.
    pub(super) last: bool,
    /// Number of the first packet, counted over all files from 1, as Wireshark does.
    pub(super) first_packet: u64,
    /// Bytes of the file.
    pub(super) bytes: Vec<u8>,
    /// Position of the records in `bytes`.
    pub(super) pieces: Vec<Piece>,
    /// Vantage of each interface of the file.
    pub(super) vantages: Arc<Vec<CapturePoint>>,
    /// Segments may come from several capture points: there are several files, or interfaces.
    pub(super) places: bool,
    /// Files overlap in time here.
    pub(super) mixed: bool,
    /// If files overlap: the time up to which all of them are read, ns since 1970.
    pub(super) complete_ns: u64,

    /// Segments of each shard, in the order of the file.
    pub(super) shares: [Vec<CapturedSegment>; SHARDS],
    /// Counters and damages of the batch.
    pub(super) notes: Notes,

    /// Output of each shard.
    pub(super) said: [Mutex<Said>; SHARDS],
}

/// Consecutive records, and their position in the batch's bytes.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) run: Run,
    pub(super) place: Range<usize>,
}

/// Counters and damages of a batch.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Packets of all kinds.
    pub(super) packets: u64,
    /// Times of the first and the last packet, ns since 1970.
    pub(super) times: Option<(u64, u64)>,
    /// Number of segments by vantage.
    pub(super) vantages: Vec<u64>,
    /// Number of packets that are not analysed, by reason.
    pub(super) left_out: BTreeMap<&'static str, u64>,
    /// Records that are complete but whose content is damaged.
    pub(super) damages: Vec<DamagedRange>,
    /// Drop counters of the interfaces.
    pub(super) statistics: Vec<Statistics>,
}

impl Notes {
    /// Counts a segment of this vantage.
    pub(super) fn seen_at(&mut self, vantage: CapturePoint) {
        let at = vantage.0 as usize;
        if self.vantages.len() <= at {
            self.vantages.resize(at + 1, 0);
        }
        self.vantages[at] += 1;
    }
}

/// Output of a shard for a batch.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) bins: Vec<Told>,
    #[allow(clippy::vec_box, reason = "they are large and go from hand to hand")]
    pub(super) flows: Vec<Box<Flow>>,
    /// Flows that were captured at two points.
    pub(super) both_ends: Vec<TwoPointComparison>,
}

/// Bin with its width: the arguments of [`Sink::bin`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) width: usize,
    pub(super) row: Row,
}

impl Told {
    /// Returns the key by which the rows of a batch are sorted.
    pub(super) fn place(&self) -> (usize, u64, bool, u64) {
        let Row {
            flow,
            upload,
            from_ns,
            ..
        } = self.row;
        (self.width, flow, !upload, from_ns)
    }
}

/// Sink of a shard's flows that stores them in the batch.
pub(super) struct Ear<'a> {
    pub(super) said: &'a mut Said,
    pub(super) output: &'a Output,
    /// True if bins are written or kept.
    pub(super) series: bool,
}

impl Sink for Ear<'_> {
    fn bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &Bin) {
        if self.series {
            self.said.bins.push(Told {
                width,
                row: Row {
                    flow,
                    upload,
                    from_ns,
                    bin: *bin,
                },
            });
        }
    }

    fn flow(&mut self, mut flow: Flow) {
        self.output.thin(&mut flow);
        self.said.flows.push(Box::new(flow));
    }
}

impl Load {
    /// Empties the batch and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.shares.iter_mut().for_each(Vec::clear);
        self.notes = Notes::default();
        self.last = false;
        self.mixed = false;
        self.complete_ns = 0;
    }
}
