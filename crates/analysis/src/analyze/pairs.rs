// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of a shard that were captured at two points: their segments are compared during the analysis.
//!
//! A connection is followed from its SYN, because a packet that only one point has counts as lost. If no second
//! point has a segment after [`ALONE_MAX`] segments, it is not followed any more.

use longhaul_flow::{
    record::{Flow, TwoPointComparison},
    segment::{CapturePoint, CapturedSegment, FlowKey},
    two_point::{Comparison, ComparisonSettings, Side},
};
use longhaul_packet::tcp::SYN;
use std::collections::HashMap;

/// Maximum number of connections that a shard follows at once: those that begin first.
const PAIRS_MAX: usize = 4;
/// Maximum number of segments at one point before the first at another.
const ALONE_MAX: u32 = 4096;
/// Maximum number of unmatched packets for each point and direction: at worst 16 MB a connection.
const PACKETS_MAX: usize = 1 << 15;

/// Connections whose two capture points are compared.
#[derive(Debug)]
pub(super) struct Pairs {
    pairs: HashMap<FlowKey, Pair>,
    /// True if the times of all capture points are by one clock.
    same_clock: bool,
}

#[derive(Debug)]
struct Pair {
    left: CapturePoint,
    right: Option<CapturePoint>,
    /// Number of segments before the first at a second point.
    alone: u32,
    comparison: Comparison,
    /// Finished flow of each capture point.
    flows: [Option<Box<Flow>>; 2],
}

impl Pairs {
    /// Creates an empty set.
    pub(super) fn new(same_clock: bool) -> Self {
        Self {
            pairs: HashMap::new(),
            same_clock,
        }
    }

    /// Adds a segment.
    pub(super) fn segment(&mut self, item: &CapturedSegment) {
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

    fn begin(&mut self, item: &CapturedSegment) {
        if self.pairs.len() < PAIRS_MAX {
            let pair = || Pair::new(item.capture_point, self.same_clock);
            self.pairs.entry(item.key).or_insert_with(pair);
        }
    }

    /// Adds a finished flow. Returns the comparison when the flow is finished at both points.
    pub(super) fn flow(&mut self, flow: &Flow) -> Option<TwoPointComparison> {
        let key = key(flow);
        let pair = self.pairs.get_mut(&key)?;
        let at = match pair.place(flow.capture_point)? {
            Side::Left => 0,
            Side::Right => 1,
        };
        pair.flows[at].get_or_insert_with(|| {
            let mut flow = Box::new(flow.clone());
            flow.drop_chart_data();
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
    fn new(left: CapturePoint, same_clock: bool) -> Self {
        let bounds = ComparisonSettings {
            packets_max: PACKETS_MAX,
            ..ComparisonSettings::default()
        };
        Self {
            left,
            right: None,
            alone: 0,
            comparison: Comparison::new(same_clock, bounds),
            flows: [None, None],
        }
    }

    fn segment(&mut self, item: &CapturedSegment) {
        if item.capture_point != self.left {
            self.right.get_or_insert(item.capture_point);
        }
        self.alone += u32::from(self.right.is_none());
        if let Some(place) = self.place(item.capture_point) {
            self.comparison.segment(place, &item.segment);
        }
    }

    /// Returns the side of a vantage; a third vantage has none.
    fn place(&self, vantage: CapturePoint) -> Option<Side> {
        match vantage {
            _ if vantage == self.left => Some(Side::Left),
            _ if Some(vantage) == self.right => Some(Side::Right),
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
