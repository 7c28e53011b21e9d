// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipeline of an analysis: reads records, decodes segments, gives each to its flow's shard, and collects the
//! output of the shards.

use super::{
    batch::{Batch, BatchStats, CutOptions, OutputSink, ShardOutput},
    flow_warnings::FlowSums,
    progress::Progress,
    shard::{Shard, shard_of},
    source::extend_span,
    sources::{CaptureInterface, FileInfo, Sources},
    warnings::warnings,
    worker_pool::Pipeline,
};
use crate::report::{
    CaptureFile, CaptureInfo, CapturePointInfo, DAMAGES_MAX, Damage, LargestUdpFlows, Output,
    Writer,
};
use anyhow::Result;
use longhaul_flow::{
    decode::{TcpPacket, Undecoded, decode_datagram},
    record::{Flow, TwoPointComparison},
    segment::{CapturePoint, CapturedSegment, FlowKey, Segment},
    udp::{CapturedDatagram, UdpFlows},
};
use longhaul_packet::{
    capture::{Frame, Record},
    tunnel::UdpTunnels,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Maximum number of two-point comparisons in the result, those of flows that end first: up to 400 kB each.
const COMPARISONS_MAX: usize = 100;

/// Pipeline of an analysis.
pub(super) struct AnalysisPipeline<'a> {
    /// True if bins are written or kept.
    pub(super) series: bool,
    pub(super) udp_tunnels: &'a UdpTunnels,
    pub(super) progress: &'a Progress,
    pub(super) output: &'a Output,
}

/// Collected output of the shards and counters of the batches.
pub(super) struct ResultCollector<'a> {
    writer: Writer<'a>,
    /// Counters and damages by file.
    files: Vec<FileStats>,
    /// Number of segments by capture point.
    segment_counts: Vec<u64>,
    /// Sums of the flows by capture point.
    flow_sums: Vec<FlowSums>,
    /// Flows that were captured at two points.
    comparisons: Vec<TwoPointComparison>,
    udp_flows: UdpFlows,
    largest_udp_flows: LargestUdpFlows,
}

/// Counters and damages of a file.
#[derive(Debug, Default)]
struct FileStats {
    packets: u64,
    times: Option<(u64, u64)>,
    skipped: BTreeMap<String, u64>,
    beyond_frame: u64,
    cut_options: CutOptions,
    flow_sums: FlowSums,
    damages: Vec<Damage>,
    damages_more: u64,
    /// Packets that the capturing kernel dropped, by interface; the last counter replaces earlier ones.
    drops: BTreeMap<u32, u64>,
}

impl<'a> Pipeline for AnalysisPipeline<'a> {
    type Reader = Sources;
    type Batch = Batch;
    type Shard = Shard;
    type Collector = ResultCollector<'a>;

    fn read(&self, sources: &mut Sources, batch: &mut Batch) -> Result<bool> {
        let has_records = sources.next(batch)?;
        self.progress.set_position(sources.offset());
        Ok(has_records)
    }

    fn partition(&self, batch: &mut Batch) -> u32 {
        assign_shards(batch, self.udp_tunnels);
        if batch.overlapping || batch.last {
            u32::MAX
        } else {
            shard_mask(batch)
        }
    }

    fn process(&self, number: usize, shard: &mut Shard, batch: &Batch) {
        let mut output = lock(&batch.outputs[number]);
        let mut sink = OutputSink {
            shard_output: &mut output,
            output: self.output,
            series: self.series,
        };
        shard.process(number, batch, &mut sink);
    }

    fn collect(&self, collected: &mut ResultCollector<'a>, batch: &Batch) -> Result<()> {
        let mut outputs: Vec<_> = batch.outputs.iter().map(lock).collect();
        collected.write_bins(&outputs);
        collected.write_flows(&mut outputs);
        outputs.iter_mut().for_each(|output| output.bins.clear());
        collected.add_stats(batch);
        collected.add_datagrams(batch);
        anyhow::ensure!(!self.output.has_failed(), "cannot write the result");
        Ok(())
    }
}

/// Decodes the records of a batch.
fn assign_shards(batch: &mut Batch, udp_tunnels: &UdpTunnels) {
    let mut number = batch.first_packet;
    for records in std::mem::take(&mut batch.runs) {
        let bytes = std::mem::take(&mut batch.bytes);
        for record in records.run.records(&bytes[records.range]) {
            match record {
                Record::Frame(frame) => {
                    batch.add_packet(number, &frame, udp_tunnels);
                    number += 1;
                }
                Record::Statistics(statistics) => batch.stats.statistics.push(*statistics),
                Record::Damage(damage) => batch.stats.damaged_records.push(*damage),
            }
        }
        if records.run.has_estimated_time() {
            batch.mark_estimated_time(number - 1);
        }
        batch.bytes = bytes;
    }
}

impl Batch {
    fn add_packet(&mut self, number: u64, frame: &Frame<'_>, udp_tunnels: &UdpTunnels) {
        self.stats.packets += 1;
        self.stats.times = extend_span(self.stats.times, frame.timestamp_ns);
        // The reader returns no record of an interface that was not described.
        let Some(&capture_point) = self.capture_points.get(frame.interface as usize) else {
            return;
        };
        match TcpPacket::find(frame, udp_tunnels) {
            Ok(TcpPacket::V4(headers)) => {
                self.add_segment(number, capture_point, frame, headers.decode(frame));
            }
            Ok(TcpPacket::V6(headers)) => {
                self.add_segment(number, capture_point, frame, headers.decode(frame));
            }
            Err(reason) => self.add_datagram(number, capture_point, frame, udp_tunnels, reason),
        }
    }

    /// Adds a segment to the list of its shard, where it is built.
    #[inline(always)]
    fn add_segment(
        &mut self,
        number: u64,
        capture_point: CapturePoint,
        frame: &Frame<'_>,
        (key, segment): (FlowKey, Segment),
    ) {
        (self.stats).count_segment(capture_point, segment.exceeds_frame);
        if segment.options_cut {
            self.stats.cut_options.add(CutOptions {
                packets: 1,
                snaplen: frame.bytes.len(),
            });
        }
        self.shard_items[shard_of(&key)].push(CapturedSegment {
            number,
            capture_point,
            key,
            segment,
        });
    }

    /// Marks the packet that was added last, if it has a segment, as one whose time is an estimate.
    #[cold]
    fn mark_estimated_time(&mut self, number: u64) {
        let last_items = self
            .shard_items
            .iter_mut()
            .filter_map(|items| items.last_mut());
        for item in last_items.filter(|item| item.number == number) {
            item.segment.time_is_estimated = true;
        }
    }

    /// Adds a packet without a segment: as a datagram if it is one, else as skipped for this reason.
    #[cold]
    #[inline(never)]
    fn add_datagram(
        &mut self,
        number: u64,
        capture_point: CapturePoint,
        frame: &Frame<'_>,
        udp_tunnels: &UdpTunnels,
        reason: Undecoded,
    ) {
        let datagram = match reason {
            Undecoded::NotTcp => decode_datagram(frame, udp_tunnels),
            _ => Err(reason),
        };
        match datagram {
            Ok((key, datagram)) => self.datagrams.push(CapturedDatagram {
                number,
                capture_point,
                key,
                datagram,
            }),
            Err(reason) => *self.stats.skipped.entry(reason).or_default() += 1,
        }
    }
}

/// Returns a bit mask of the shards that have segments in a batch.
fn shard_mask(batch: &Batch) -> u32 {
    let items = batch.shard_items.iter().enumerate();
    items
        .filter(|(_, items)| !items.is_empty())
        .map(|(shard, _)| 1 << shard)
        .sum()
}

impl<'a> ResultCollector<'a> {
    /// Creates an empty collector that writes to `output`. UDP flows may use `udp_memory_max_bytes`.
    pub(super) fn new(output: &'a Output, udp_memory_max_bytes: usize) -> Self {
        Self {
            writer: output.writer(),
            files: Vec::new(),
            segment_counts: Vec::new(),
            flow_sums: Vec::new(),
            comparisons: Vec::new(),
            udp_flows: UdpFlows::new(udp_memory_max_bytes),
            largest_udp_flows: LargestUdpFlows::default(),
        }
    }

    /// Writes bins in an order that does not depend on shards: by width, flow, direction and time.
    fn write_bins(&mut self, outputs: &[MutexGuard<'_, ShardOutput>]) {
        let mut bins: Vec<_> = outputs.iter().flat_map(|output| &output.bins).collect();
        bins.sort_unstable_by_key(|bin| bin.sort_key());
        for bin in bins {
            self.writer.write_row(bin.width, bin.row);
        }
    }

    /// Writes flows in order of their numbers.
    fn write_flows(&mut self, outputs: &mut [MutexGuard<'_, ShardOutput>]) {
        let mut flows = Vec::new();
        for output in outputs {
            flows.append(&mut output.flows);
            let free = COMPARISONS_MAX.saturating_sub(self.comparisons.len());
            self.comparisons
                .extend(output.comparisons.drain(..).take(free));
        }
        flows.sort_unstable_by_key(|flow| flow.number);
        for flow in flows {
            self.sum_flow(&flow);
            self.writer.write_flow(flow);
        }
    }

    fn sum_flow(&mut self, flow: &Flow) {
        let index = flow.capture_point.0 as usize;
        if self.flow_sums.len() <= index {
            self.flow_sums.resize_with(index + 1, FlowSums::default);
        }
        self.flow_sums[index].add_flow(flow);
    }

    fn add_stats(&mut self, batch: &Batch) {
        if self.files.len() <= batch.file {
            self.files.resize_with(batch.file + 1, FileStats::default);
        }
        self.files[batch.file].add(&batch.stats);
        add_counts(&mut self.segment_counts, &batch.stats.capture_points);
    }

    fn add_datagrams(&mut self, batch: &Batch) {
        for datagram in &batch.datagrams {
            let largest = &mut self.largest_udp_flows;
            self.udp_flows.process(datagram, |flow| largest.add(flow));
        }
    }

    /// Closes the writer and returns the facts about files and capture points.
    pub(super) fn close(mut self, sources: Sources) -> CaptureInfo {
        let (facts, interfaces) = sources.into_file_info();
        self.files.resize_with(facts.len(), FileStats::default);
        for (interface, sums) in interfaces.iter().zip(&self.flow_sums) {
            self.files[interface.file].flow_sums.add(sums);
        }
        let names: Vec<_> = facts
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        let files = facts.into_iter().zip(self.files);
        let packets = self
            .segment_counts
            .iter()
            .copied()
            .chain(std::iter::repeat(0));
        let points = interfaces.into_iter().zip(packets);
        let largest = &mut self.largest_udp_flows;
        self.udp_flows.finish(|flow| largest.add(flow));
        CaptureInfo {
            files: files
                .map(|(facts, found)| found.into_capture_file(facts))
                .collect(),
            capture_points: points
                .map(|(interface, packets)| {
                    capture_point_info(&interface, &names[interface.file], packets)
                })
                .collect(),
            two_point_comparisons: self.comparisons,
            udp_flows: self.largest_udp_flows,
        }
    }
}

impl FileStats {
    fn add(&mut self, stats: &BatchStats) {
        self.packets += stats.packets;
        if let Some((first, last)) = stats.times {
            self.times = extend_span(extend_span(self.times, first), last);
        }
        for (reason, count) in &stats.skipped {
            *self.skipped.entry(describe_skipped(*reason)).or_default() += count;
        }
        self.beyond_frame += stats.beyond_frame;
        self.cut_options.add(stats.cut_options);
        for damage in &stats.damaged_records {
            self.add_damage(damage.at, damage.to_string());
        }
        for statistics in &stats.statistics {
            let drops = [statistics.if_dropped, statistics.os_dropped];
            let reported = drops.iter().flatten().copied().max();
            self.drops
                .extend(reported.map(|drops| (statistics.interface, drops)));
        }
    }

    /// Adds a damage; beyond the maximum it is only counted.
    fn add_damage(&mut self, at_byte: u64, description: String) {
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage {
                at_byte,
                description,
            });
        } else {
            self.damages_more += 1;
        }
    }

    fn into_capture_file(mut self, facts: FileInfo) -> CaptureFile {
        for (at, description) in facts.damages {
            self.add_damage(at, description);
        }
        self.damages.sort_by_key(|damage| damage.at_byte);
        let mut warnings = warnings(facts.odd_times, self.beyond_frame, self.cut_options);
        warnings.extend(self.flow_sums.warnings());
        CaptureFile {
            name: facts.path.display().to_string(),
            format: facts.format,
            bytes: facts.bytes,
            packets: self.packets,
            first_ns: self.times.map(|(first, _)| first),
            last_ns: self.times.map(|(_, last)| last),
            kernel_drops: (!self.drops.is_empty()).then(|| self.drops.values().sum()),
            warnings,
            damages: self.damages,
            unlisted_damages: self.damages_more,
            skipped: self.skipped,
        }
    }
}

/// Returns the result's entry of a capture point. An interface without a name gets the name of its file.
fn capture_point_info(interface: &CaptureInterface, file: &str, packets: u64) -> CapturePointInfo {
    CapturePointInfo {
        name: interface.name.as_deref().unwrap_or(file).to_owned(),
        file: interface.file,
        interface: interface.number,
        packets,
    }
}

fn describe_skipped(reason: Undecoded) -> String {
    let text = match reason {
        Undecoded::LinkType(number) => return format!("unknown link type {number}"),
        Undecoded::NotIp => "not IP",
        Undecoded::NotTcp => "neither TCP nor UDP",
        Undecoded::Nested => "more than eight nested tunnels",
        Undecoded::Encrypted => "encrypted by IPsec",
        Undecoded::EncryptedWifi => "encrypted 802.11 data",
        Undecoded::AggregatedWifi => "several packets in one 802.11 frame (A-MSDU)",
        Undecoded::WifiFragment => "later fragments of 802.11 frames",
        Undecoded::CompressedPpp => "compressed or encrypted by PPP",
        Undecoded::Fragment => "later fragments of IP packets",
        Undecoded::Short => "truncated before the end of the TCP header; a snaplen of 128 keeps it",
        Undecoded::Lengths => "inconsistent lengths",
    };
    text.to_owned()
}

fn add_counts(sums: &mut Vec<u64>, more: &[u64]) {
    sums.resize(sums.len().max(more.len()), 0);
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
