// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shard: a share of the flows. All vantages of a flow are in the same shard.

use super::{
    crew::SHARDS,
    load::{Ear, Load},
    pairs::Pairs,
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
    pairs: Pairs,
    /// Waiting segments by file, each queue in order.
    waiting: Vec<VecDeque<CapturedSegment>>,
}

impl Shard {
    /// Creates a shard without flows. `settings` are for one shard; `one_file` means that all times are by one clock.
    pub(super) fn new(settings: Settings, one_file: bool) -> Self {
        Self {
            flows: Some(Flows::new(settings)),
            pairs: Pairs::new(one_file),
            waiting: Vec::new(),
        }
    }

    /// Processes the shard's segments of a batch; `number` is the shard's.
    pub(super) fn take(&mut self, number: usize, load: &Load, ear: &mut Ear<'_>) {
        let items = &load.shares[number];
        if load.mixed {
            self.queue(load.file).extend(items);
            self.take_waiting(load.complete_ns, load.places, ear);
        } else {
            self.take_waiting(u64::MAX, load.places, ear);
            self.segments(items, load.places, ear);
        }
        if load.last {
            self.take_waiting(u64::MAX, load.places, ear);
            self.finish(ear);
        }
    }

    /// Processes the waiting segments of all files up to `complete_ns`, in order of time.
    fn take_waiting(&mut self, complete_ns: u64, places: bool, ear: &mut Ear<'_>) {
        while let Some(item) = self.next_waiting(complete_ns) {
            self.segment(&item, places, ear);
        }
    }

    fn next_waiting(&mut self, complete_ns: u64) -> Option<CapturedSegment> {
        let at_ns =
            |queue: &VecDeque<CapturedSegment>| queue.front().map(|item| item.segment.at_ns);
        let fronts = self.waiting.iter().enumerate();
        let (at_ns, file) = fronts
            .filter_map(|(file, queue)| Some((at_ns(queue)?, file)))
            .min()?;
        let due = at_ns <= complete_ns;
        due.then(|| self.waiting[file].pop_front()).flatten()
    }

    fn queue(&mut self, file: usize) -> &mut VecDeque<CapturedSegment> {
        if self.waiting.len() <= file {
            self.waiting.resize_with(file + 1, VecDeque::new);
        }
        &mut self.waiting[file]
    }

    /// Processes segments. With more than one capture point (`places`), packets are compared in order of time.
    /// Otherwise each flow gets all its segments at once.
    fn segments(&mut self, items: &[CapturedSegment], places: bool, ear: &mut Ear<'_>) {
        match &mut self.flows {
            Some(flows) if !places => flows.segments(items, ear),
            _ => items
                .iter()
                .for_each(|item| self.segment(item, places, ear)),
        }
    }

    /// Processes one segment.
    #[inline]
    fn segment(&mut self, item: &CapturedSegment, places: bool, ear: &mut Ear<'_>) {
        let Some(flows) = &mut self.flows else {
            return;
        };
        let before = ear.said.flows.len();
        flows.segments(std::slice::from_ref(item), ear);
        self.pair(before, ear);
        if places {
            self.pairs.segment(item);
        }
    }

    fn finish(&mut self, ear: &mut Ear<'_>) {
        let before = ear.said.flows.len();
        if let Some(flows) = self.flows.take() {
            flows.finish(ear);
        }
        self.pair(before, ear);
    }

    /// Passes the flows that have just ended, from index `before` on, to the comparison of capture points.
    #[inline]
    fn pair(&mut self, before: usize, ear: &mut Ear<'_>) {
        let said = &mut *ear.said;
        for flow in &said.flows[before..] {
            said.both_ends.extend(self.pairs.flow(flow));
        }
    }
}

/// Returns the shard of a flow: the same for both directions of a connection and on every machine.
pub(super) fn shard_of(key: &FlowKey) -> usize {
    /// 2⁶⁴ divided by the golden ratio: Fibonacci hashing (Knuth, vol. 3, §6.4).
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let ports = u64::from(key.low.port) << 16 | u64::from(key.high.port);
    let addresses = fold(key.low.address).rotate_left(7) ^ fold(key.high.address);
    let mixed = (addresses.wrapping_mul(GOLDEN) ^ ports).wrapping_mul(GOLDEN);
    (mixed >> 60) as usize % SHARDS
}

fn fold(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    }
}
