// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch of work for the worker pool: records of one file, their segments, and the output of the shards.

use super::worker_pool::SHARDS;
use crate::{report::Output, series::Row};
use longhaul_flow::{
    Sink,
    bin::Bin,
    decode::Undecoded,
    record::{Flow, TwoPointComparison},
    segment::{CapturePoint, CapturedSegment},
    udp::CapturedDatagram,
};
use longhaul_packet::capture::{DamagedRange, Run, Statistics};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

/// Complete records of one file. A batch is reused when its output is written, so that its large buffers are allocated
/// only once.
///
/// Memory: the bytes (256 KiB, up to 20 MiB if a record is that long), 160 bytes for each packet in them, and
/// the output of the shards. A batch usually has 2,500 packets. It has at most 16,000, if all packets are empty.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Index of the file, in the order of the command line.
    pub(super) file: usize,
    /// True for the last batch of the capture: it has no bytes, and the shards finish all flows.
    pub(super) last: bool,
    /// Number of the first packet, counted over all files from 1, as Wireshark does.
    pub(super) first_packet: u64,
    /// Bytes of the file.
    pub(super) bytes: Vec<u8>,
    /// Position of the records in `bytes`.
    pub(super) runs: Vec<RecordRun>,
    /// Capture point of each interface of the file.
    pub(super) capture_points: Arc<Vec<CapturePoint>>,
    /// True if segments may come from several capture points: there are several files or interfaces.
    pub(super) multiple_points: bool,
    /// True if files overlap in time at this batch.
    pub(super) overlapping: bool,
    /// If files overlap: the time up to which all of them have been read, ns since 1970.
    pub(super) complete_until_ns: u64,

    /// Segments of each shard, in the order of the file.
    pub(super) shard_items: [Vec<CapturedSegment>; SHARDS],
    /// UDP datagrams, in the order of the file.
    pub(super) datagrams: Vec<CapturedDatagram>,
    /// Counters and damaged records of the batch.
    pub(super) stats: BatchStats,

    /// Output of each shard.
    pub(super) outputs: [Mutex<ShardOutput>; SHARDS],
}

/// Consecutive records, and their position in the batch's bytes.
#[derive(Debug)]
pub(super) struct RecordRun {
    pub(super) run: Run,
    pub(super) range: Range<usize>,
}

/// Counters and damaged records of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchStats {
    /// Packets of all kinds.
    pub(super) packets: u64,
    /// Times of the first and the last packet, ns since 1970.
    pub(super) times: Option<(u64, u64)>,
    /// Number of segments by capture point.
    pub(super) capture_points: Vec<u64>,
    /// Number of packets that are not analysed, by reason.
    pub(super) skipped: BTreeMap<Undecoded, u64>,
    /// Number of segments whose IP length reaches beyond their frame.
    pub(super) beyond_frame: u64,
    /// Segments without all of their TCP options.
    pub(super) cut_options: CutOptions,
    /// Complete records whose content is damaged.
    pub(super) damaged_records: Vec<DamagedRange>,
    /// Drop counters of the interfaces.
    pub(super) statistics: Vec<Statistics>,
}

impl BatchStats {
    /// Counts a segment of this capture point.
    pub(super) fn count_segment(&mut self, capture_point: CapturePoint, exceeds_frame: bool) {
        self.beyond_frame += u64::from(exceeds_frame);
        let index = capture_point.0 as usize;
        if self.capture_points.len() <= index {
            self.capture_points.resize(index + 1, 0);
        }
        self.capture_points[index] += 1;
    }
}

/// Segments whose TCP options the snaplen cut.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CutOptions {
    /// Number of segments.
    pub(super) packets: u64,
    /// Most captured bytes of one of them: the snaplen.
    pub(super) snaplen: usize,
}

impl CutOptions {
    /// Adds those of another batch or packet.
    pub(super) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.snaplen = self.snaplen.max(other.snaplen);
    }
}

/// Output of a shard for a batch.
#[derive(Debug, Default)]
pub(super) struct ShardOutput {
    pub(super) bins: Vec<BinRow>,
    #[allow(
        clippy::vec_box,
        reason = "flows are large, and each is moved several times"
    )]
    pub(super) flows: Vec<Box<Flow>>,
    /// Flows that were captured at two points.
    pub(super) comparisons: Vec<TwoPointComparison>,
}

/// Arguments of [`Sink::receive_bin`].
#[derive(Debug, Clone, Copy)]
pub(super) struct BinRow {
    /// Index into the bin widths of the settings.
    pub(super) width: usize,
    pub(super) row: Row,
}

impl BinRow {
    /// Returns the key by which the rows of a batch are sorted.
    pub(super) fn sort_key(&self) -> (usize, u64, bool, u64) {
        let Row {
            flow,
            upload,
            from_ns,
            ..
        } = self.row;
        (self.width, flow, !upload, from_ns)
    }
}

/// Sink that stores the flows and bins of a shard in the batch.
pub(super) struct OutputSink<'a> {
    pub(super) shard_output: &'a mut ShardOutput,
    pub(super) output: &'a Output,
    /// True if bins are stored: for the series files, or for the charts.
    pub(super) series: bool,
}

impl Sink for OutputSink<'_> {
    fn receive_bin(&mut self, flow: u64, upload: bool, width: usize, from_ns: u64, bin: &Bin) {
        if self.series {
            self.shard_output.bins.push(BinRow {
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

    fn receive_flow(&mut self, mut flow: Flow) {
        self.output.drop_unused_chart_data(&mut flow);
        self.shard_output.flows.push(Box::new(flow));
    }
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.shard_items.iter_mut().for_each(Vec::clear);
        self.datagrams.clear();
        self.stats = BatchStats::default();
        self.last = false;
        self.overlapping = false;
        self.complete_until_ns = 0;
    }
}
