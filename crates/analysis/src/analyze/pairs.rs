// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of a shard that are seen at two places: their segments are compared as they come.
//!
//! A connection is followed from its SYN, because what only one place has counts as lost. If no second
//! place has seen it after [`ALONE_MAX`] segments, it is not followed any more.

use longhaul_flow::{
    both_ends::{Bounds, Comparison, Place},
    record::{BothEnds, Flow},
    segment::{FlowKey, Item, Vantage},
};
use longhaul_packet::tcp::SYN;
use std::collections::HashMap;

/// Connections that a shard follows at once, those that begin first.
const PAIRS_MAX: usize = 4;
/// Segments at one place before there is one at another.
const ALONE_MAX: u32 = 4096;
/// Packets that wait for their like, for each place and direction: at worst 16 MB a connection.
const PACKETS_MAX: usize = 1 << 15;

/// Connections that are followed.
#[derive(Debug)]
pub(super) struct Pairs {
    pairs: HashMap<FlowKey, Pair>,
    /// All places' times are by one clock.
    same_clock: bool,
}

#[derive(Debug)]
struct Pair {
    left: Vantage,
    right: Option<Vantage>,
    /// Segments before there was a right.
    alone: u32,
    comparison: Comparison,
    /// What the analysis of each place says, as soon as it does.
    flows: [Option<Box<Flow>>; 2],
}

impl Pairs {
    /// None yet.
    pub(super) fn new(same_clock: bool) -> Self {
        Self {
            pairs: HashMap::new(),
            same_clock,
        }
    }

    /// Takes a segment in.
    pub(super) fn segment(&mut self, item: &Item) {
        if item.segment.flags & SYN != 0 {
            self.begin(item);
        }
        let Some(pair) = self.pairs.get_mut(&item.key) else {
            return;
        };
        pair.segment(item);
        if pair.alone > ALONE_MAX {
            self.pairs.remove(&item.key);
        }
    }

    fn begin(&mut self, item: &Item) {
        if self.pairs.len() < PAIRS_MAX {
            let pair = || Pair::new(item.vantage, self.same_clock);
            self.pairs.entry(item.key).or_insert_with(pair);
        }
    }

    /// Takes note of a flow that is over. When it is over at both places, they are compared.
    pub(super) fn flow(&mut self, flow: &Flow) -> Option<BothEnds> {
        let key = key(flow);
        let pair = self.pairs.get_mut(&key)?;
        let at = match pair.place(flow.vantage)? {
            Place::Left => 0,
            Place::Right => 1,
        };
        pair.flows[at].get_or_insert_with(|| {
            let mut flow = Box::new(flow.clone());
            flow.drop_courses();
            flow
        });
        pair.flows.iter().all(Option::is_some).then_some(())?;
        let Pair {
            comparison, flows, ..
        } = self.pairs.remove(&key)?;
        let [left, right] = flows;
        Some(comparison.finish(&*left?, &*right?))
    }
}

impl Pair {
    fn new(left: Vantage, same_clock: bool) -> Self {
        let bounds = Bounds {
            packets_max: PACKETS_MAX,
            ..Bounds::default()
        };
        Self {
            left,
            right: None,
            alone: 0,
            comparison: Comparison::new(same_clock, bounds),
            flows: [None, None],
        }
    }

    fn segment(&mut self, item: &Item) {
        if item.vantage != self.left {
            self.right.get_or_insert(item.vantage);
        }
        self.alone += u32::from(self.right.is_none());
        if let Some(place) = self.place(item.vantage) {
            self.comparison.segment(place, &item.segment);
        }
    }

    /// A third place is none of both.
    fn place(&self, vantage: Vantage) -> Option<Place> {
        match vantage {
            _ if vantage == self.left => Some(Place::Left),
            _ if Some(vantage) == self.right => Some(Place::Right),
            _ => None,
        }
    }
}

fn key(flow: &Flow) -> FlowKey {
    FlowKey {
        low: flow.client.min(flow.server),
        high: flow.client.max(flow.server),
    }
}
