// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shard: a share of the flows. All capture points of a flow are in the same shard.

use super::{
    batch::{Batch, OutputSink},
    pairs::FlowPairs,
    worker_pool::SHARDS,
};
use longhaul_flow::{
    Flows, Settings,
    segment::{CapturedSegment, FlowKey},
};
use std::{collections::VecDeque, net::IpAddr};

/// Flows, and segments that wait until the other files are read to the same time.
pub(super) struct Shard {
    flows: Option<Flows>,
    /// Comparison of flows, if there may be more than one capture point.
    pairs: FlowPairs,
    /// Waiting segments by file, each queue in order.
    waiting: Vec<VecDeque<CapturedSegment>>,
}

impl Shard {
    /// Creates a shard without flows. `settings` are for one shard; `one_file` means that all times are by one clock.
    pub(super) fn new(settings: Settings, one_file: bool) -> Self {
        Self {
            flows: Some(Flows::new(settings)),
            pairs: FlowPairs::new(one_file),
            waiting: Vec::new(),
        }
    }

    /// Processes the shard's segments of a batch; `number` is the shard's.
    pub(super) fn process(&mut self, number: usize, batch: &Batch, sink: &mut OutputSink<'_>) {
        let items = &batch.shard_items[number];
        if batch.overlapping {
            self.queue(batch.file).extend(items);
            self.process_waiting(batch.complete_until_ns, batch.multiple_points, sink);
        } else {
            self.process_waiting(u64::MAX, batch.multiple_points, sink);
            self.process_segments(items, batch.multiple_points, sink);
        }
        if batch.last {
            self.process_waiting(u64::MAX, batch.multiple_points, sink);
            self.finish(sink);
        }
    }

    /// Processes the waiting segments of all files up to `complete_until_ns`, in order of time.
    fn process_waiting(
        &mut self,
        complete_until_ns: u64,
        multiple_points: bool,
        sink: &mut OutputSink<'_>,
    ) {
        while let Some(item) = self.next_waiting(complete_until_ns) {
            self.process_segment(&item, multiple_points, sink);
        }
    }

    fn next_waiting(&mut self, complete_until_ns: u64) -> Option<CapturedSegment> {
        let at_ns =
            |queue: &VecDeque<CapturedSegment>| queue.front().map(|item| item.segment.at_ns);
        let fronts = self.waiting.iter().enumerate();
        let (at_ns, file) = fronts
            .filter_map(|(file, queue)| Some((at_ns(queue)?, file)))
            .min()?;
        let due = at_ns <= complete_until_ns;
        due.then(|| self.waiting[file].pop_front()).flatten()
    }

    fn queue(&mut self, file: usize) -> &mut VecDeque<CapturedSegment> {
        if self.waiting.len() <= file {
            self.waiting.resize_with(file + 1, VecDeque::new);
        }
        &mut self.waiting[file]
    }

    /// Processes segments. With more than one capture point (`multiple_points`), packets are compared in order of time.
    /// Otherwise each flow gets all its segments at once.
    fn process_segments(
        &mut self,
        items: &[CapturedSegment],
        multiple_points: bool,
        sink: &mut OutputSink<'_>,
    ) {
        match &mut self.flows {
            Some(flows) if !multiple_points => flows.process_segments(items, sink),
            _ => items
                .iter()
                .for_each(|item| self.process_segment(item, multiple_points, sink)),
        }
    }

    /// Processes one segment.
    #[inline]
    fn process_segment(
        &mut self,
        item: &CapturedSegment,
        multiple_points: bool,
        sink: &mut OutputSink<'_>,
    ) {
        let Some(flows) = &mut self.flows else {
            return;
        };
        let before = sink.shard_output.flows.len();
        let CapturedSegment {
            number,
            capture_point,
            key,
            segment,
        } = item;
        let is_new = flows.process_segment(*number, *capture_point, key, segment, sink);
        self.match_finished(before, sink);
        if multiple_points && is_new {
            self.pairs.process_segment(item);
        }
    }

    fn finish(&mut self, sink: &mut OutputSink<'_>) {
        let before = sink.shard_output.flows.len();
        if let Some(flows) = self.flows.take() {
            flows.finish(sink);
        }
        self.match_finished(before, sink);
    }

    /// Passes the flows that have just ended, from index `before` on, to the comparison of capture points.
    #[inline]
    fn match_finished(&mut self, before: usize, sink: &mut OutputSink<'_>) {
        let output = &mut *sink.shard_output;
        for flow in &output.flows[before..] {
            output.comparisons.extend(self.pairs.add_flow(flow));
        }
    }
}

/// Returns the shard of a flow: the same for both directions of a connection and on every machine.
pub(super) fn shard_of(key: &FlowKey) -> usize {
    /// 2⁶⁴ divided by the golden ratio: Fibonacci hashing (Knuth, vol. 3, §6.4).
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let ports = u64::from(key.low.port) << 16 | u64::from(key.high.port);
    let addresses = fold_to_u64(key.low.address).rotate_left(7) ^ fold_to_u64(key.high.address);
    let hash = (addresses.wrapping_mul(GOLDEN) ^ ports).wrapping_mul(GOLDEN);
    (hash >> 60) as usize % SHARDS
}

fn fold_to_u64(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    }
}
