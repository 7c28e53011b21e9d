// SPDX-License-Identifier: MIT OR Apache-2.0
//! A share of the flows. All vantages of a flow are in the same shard.

use super::{
    crew::SHARDS,
    load::{Ear, Item, Load},
};
use model::tap::{Flows, Settings, Sink, segment::FlowKey};
use std::{collections::VecDeque, net::IpAddr};

/// Flows, and segments that wait until other files are as far.
pub(super) struct Shard {
    flows: Option<Flows>,
    /// By file, each in order.
    waiting: Vec<VecDeque<Item>>,
}

impl Shard {
    /// No flow yet; `settings` are for one shard.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            flows: Some(Flows::new(settings)),
            waiting: Vec::new(),
        }
    }

    /// Takes its share of a load.
    pub(super) fn take(&mut self, number: usize, load: &Load, ear: &mut Ear<'_>) {
        let share = load.shares[number].iter();
        let items = share.map(|&at| &load.items[at as usize]);
        if load.mixed {
            self.queue(load.file).extend(items.copied());
            self.take_waiting(load.complete_ns, ear);
        } else {
            self.take_waiting(u64::MAX, ear);
            items.for_each(|item| self.segment(item, ear));
        }
        if load.last {
            self.take_waiting(u64::MAX, ear);
            self.finish(ear);
        }
    }

    /// Of every file what is not later than `complete_ns`, in order of time.
    fn take_waiting(&mut self, complete_ns: u64, ear: &mut Ear<'_>) {
        while let Some(item) = self.next_waiting(complete_ns) {
            self.segment(&item, ear);
        }
    }

    fn next_waiting(&mut self, complete_ns: u64) -> Option<Item> {
        let at_ns = |queue: &VecDeque<Item>| queue.front().map(|item| item.segment.at_ns);
        let fronts = self.waiting.iter().enumerate();
        let (at_ns, file) = fronts
            .filter_map(|(file, queue)| Some((at_ns(queue)?, file)))
            .min()?;
        let due = at_ns <= complete_ns;
        due.then(|| self.waiting[file].pop_front()).flatten()
    }

    fn queue(&mut self, file: usize) -> &mut VecDeque<Item> {
        if self.waiting.len() <= file {
            self.waiting.resize_with(file + 1, VecDeque::new);
        }
        &mut self.waiting[file]
    }

    fn segment(&mut self, item: &Item, ear: &mut Ear<'_>) {
        if let Some(flows) = &mut self.flows {
            flows.segment(item.number, item.vantage, &item.key, &item.segment, ear);
        }
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        if let Some(flows) = self.flows.take() {
            flows.finish(sink);
        }
    }
}

/// Which shard a flow belongs to: the same whichever way a packet went, and on every machine.
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
