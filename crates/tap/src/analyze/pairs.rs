// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of a shard that were captured at two points: their segments are compared during the analysis.
//!
//! A connection is followed from its SYN, because a packet that only one point has counts as lost. If no second
//! point has a segment after [`UNMATCHED_MAX`] segments, it is not followed any more. Of more than two points, those
//! are compared that had the SYN first and last: the farthest apart, if their clocks agree.

use longhaul_flow::{
    record::{Flow, TwoPointComparison},
    segment::{CapturePoint, CapturedSegment, FlowKey, Segment},
    two_point::{Comparison, ComparisonSettings, Side},
};
use longhaul_packet::tcp::{ACK, SYN};
use std::collections::HashMap;

/// Maximum number of connections that a shard follows at once: those that begin first.
const FLOW_PAIRS_MAX: usize = 4;
/// Maximum number of segments at one point before the first at another.
const UNMATCHED_MAX: u32 = 4096;
/// Maximum number of SYNs of a connection after which no farther point is looked for.
const SYNS_MAX: usize = 8;
/// Maximum number of unmatched packets for each point and direction: at worst 16 MB a connection.
const PACKETS_MAX: usize = 1 << 15;

/// Connections whose two capture points are compared.
#[derive(Debug)]
pub(super) struct FlowPairs {
    pairs: HashMap<FlowKey, FlowPair>,
    /// True if the times of all capture points are by one clock.
    same_clock: bool,
}

#[derive(Debug)]
struct FlowPair {
    left: CapturePoint,
    right: Option<CapturePoint>,
    same_clock: bool,
    /// SYNs at the left point, as long as nothing else was sent.
    syns: Option<Vec<Segment>>,
    /// Number of segments before the first at a second point.
    unmatched_segments: u32,
    comparison: Comparison,
    /// Finished flow of each capture point.
    flows: [Option<Box<Flow>>; 2],
}

impl FlowPairs {
    /// Creates an empty set.
    pub(super) fn new(same_clock: bool) -> Self {
        Self {
            pairs: HashMap::new(),
            same_clock,
        }
    }

    /// Adds a segment.
    pub(super) fn process_segment(&mut self, item: &CapturedSegment) {
        if item.segment.flags & SYN != 0 {
            self.start_pair(item);
        }
        let Some(pair) = self.pairs.get_mut(&item.key) else {
            return;
        };
        pair.process_segment(item);
        if pair.unmatched_segments > UNMATCHED_MAX {
            self.pairs.remove(&item.key);
        }
    }

    fn start_pair(&mut self, item: &CapturedSegment) {
        if self.pairs.len() < FLOW_PAIRS_MAX {
            let pair = || FlowPair::new(item.capture_point, self.same_clock);
            self.pairs.entry(item.key).or_insert_with(pair);
        }
    }

    /// Adds a finished flow. Returns the comparison when the flow is finished at both points.
    pub(super) fn add_flow(&mut self, flow: &Flow) -> Option<TwoPointComparison> {
        let key = flow_key(flow);
        let pair = self.pairs.get_mut(&key)?;
        let side_index = match pair.side_of(flow.capture_point)? {
            Side::Left => 0,
            Side::Right => 1,
        };
        pair.flows[side_index].get_or_insert_with(|| {
            let mut flow = Box::new(flow.clone());
            flow.drop_chart_data();
            flow
        });
        pair.flows.iter().all(Option::is_some).then_some(())?;
        let FlowPair {
            comparison, flows, ..
        } = self.pairs.remove(&key)?;
        let [left, right] = flows;
        Some(comparison.finish(&*left?, &*right?))
    }
}

impl FlowPair {
    fn new(left: CapturePoint, same_clock: bool) -> Self {
        Self {
            left,
            right: None,
            same_clock,
            syns: Some(Vec::new()),
            unmatched_segments: 0,
            comparison: comparison(same_clock),
            flows: [None, None],
        }
    }

    fn process_segment(&mut self, item: &CapturedSegment) {
        if item.segment.flags & (SYN | ACK) == SYN {
            self.process_syn(item);
        } else {
            self.syns = None;
        }
        if item.capture_point != self.left {
            self.right.get_or_insert(item.capture_point);
        }
        self.unmatched_segments += u32::from(self.right.is_none());
        if let Some(side) = self.side_of(item.capture_point) {
            self.comparison.process_segment(side, &item.segment);
        }
    }

    /// Begins again with the capture point of a SYN that none had later.
    fn process_syn(&mut self, item: &CapturedSegment) {
        self.syns.take_if(|syns| syns.len() >= SYNS_MAX);
        let Some(syns) = &mut self.syns else {
            return;
        };
        if item.capture_point == self.left {
            syns.push(item.segment);
        } else if self.right.replace(item.capture_point) != Some(item.capture_point) {
            self.comparison = comparison(self.same_clock);
            for syn in syns {
                self.comparison.process_segment(Side::Left, syn);
            }
        }
    }

    /// Returns the side of a capture point; a third capture point has none.
    fn side_of(&self, capture_point: CapturePoint) -> Option<Side> {
        match capture_point {
            _ if capture_point == self.left => Some(Side::Left),
            _ if Some(capture_point) == self.right => Some(Side::Right),
            _ => None,
        }
    }
}

fn comparison(same_clock: bool) -> Comparison {
    let bounds = ComparisonSettings {
        packets_max: PACKETS_MAX,
        ..ComparisonSettings::default()
    };
    Comparison::new(same_clock, bounds)
}

fn flow_key(flow: &Flow) -> FlowKey {
    FlowKey {
        low: flow.client.min(flow.server),
        high: flow.client.max(flow.server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::short_flow;

    fn syn(point: u32, flags: u8) -> CapturedSegment {
        CapturedSegment {
            number: 0,
            capture_point: CapturePoint(point),
            key: flow_key(&short_flow(1)),
            segment: Segment {
                flags,
                ..Segment::default()
            },
        }
    }

    #[test]
    fn compares_the_first_and_the_last_of_three_points() {
        let mut pairs = FlowPairs::new(false);
        for point in [1, 2, 3] {
            pairs.process_segment(&syn(point, SYN));
        }
        for point in [3, 2, 1] {
            pairs.process_segment(&syn(point, SYN | ACK));
        }
        pairs.process_segment(&syn(2, SYN));
        let pair = pairs.pairs.values().next().unwrap();
        let points = (pair.left, pair.right);
        assert_eq!(points, (CapturePoint(1), Some(CapturePoint(3))));
    }
}
