// SPDX-License-Identifier: MIT OR Apache-2.0
//! Largest flows of a capture, selected as flows end, in bounded memory. The largest keep their time series. More
//! are in the result without. All others get a line in `flows.jsonl` and are summed.

use super::Remainder;
use longhaul_flow::record::{Direction, Flow};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Write},
};

/// Numbers of flows that are charted and listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowLimits {
    /// Flows with their time series, for charts. Each takes up to 2 MB.
    pub(crate) charted: usize,
    /// Flows in `result.json`, including those with charts. Each takes up to 50 kB.
    pub(crate) listed: usize,
}

/// Sort key: payload, and for equal payload the flow that began first.
type Rank = (u64, Reverse<u64>);

/// Flows in ascending order of rank: the largest is the last.
#[derive(Default)]
struct RankedFlows(BTreeMap<Rank, Box<Flow>>);

impl RankedFlows {
    /// Inserts `flow`. Returns the smallest flow if there are more than `max` then.
    fn insert(&mut self, flow: Box<Flow>, max: usize) -> Option<Box<Flow>> {
        self.0.insert(rank(&flow), flow);
        let is_full = self.0.len() > max;
        is_full
            .then(|| self.0.pop_first().map(|(_, smallest)| smallest))
            .flatten()
    }
}

/// Selection of the largest flows.
pub(crate) struct LargestFlows<W> {
    limits: FlowLimits,
    charted: RankedFlows,
    listed: RankedFlows,
    remainder: Remainder,
    /// Output of a line for each of the other flows.
    remainder_file: Option<W>,
}

impl<W: Write> LargestFlows<W> {
    pub(crate) fn new(limits: FlowLimits, remainder_file: Option<W>) -> Self {
        Self {
            limits,
            charted: RankedFlows::default(),
            listed: RankedFlows::default(),
            remainder: Remainder::default(),
            remainder_file,
        }
    }

    /// Adds a finished flow.
    pub(crate) fn add(&mut self, flow: Box<Flow>) -> io::Result<()> {
        let FlowLimits { charted, listed } = self.limits;
        let displaced = self.charted.insert(flow, charted).map(without_chart_data);
        let dropped =
            displaced.and_then(|flow| self.listed.insert(flow, listed.saturating_sub(charted)));
        dropped.map_or(Ok(()), |flow| self.add_to_remainder(&flow))
    }

    fn add_to_remainder(&mut self, flow: &Flow) -> io::Result<()> {
        self.remainder.add(flow);
        let Some(lines) = &mut self.remainder_file else {
            return Ok(());
        };
        serde_json::to_writer(&mut *lines, flow)?;
        lines.write_all(b"\n")
    }

    /// Returns the smallest payload of the flows with charts, or 0 while more flows fit. A flow with less payload
    /// cannot get charts any more.
    pub(crate) fn charted_payload_min(&self) -> u64 {
        match self.charted.0.first_key_value() {
            Some((rank, _)) if self.charted.0.len() >= self.limits.charted => rank.0,
            _ => 0,
        }
    }

    /// Returns the flows for the result, largest first, and the sum of the others.
    pub(crate) fn finish(self) -> io::Result<(Vec<Flow>, Remainder)> {
        if let Some(mut lines) = self.remainder_file {
            lines.flush()?;
        }
        let ascending = self
            .listed
            .0
            .into_values()
            .chain(self.charted.0.into_values());
        let mut flows: Vec<Flow> = ascending.map(|flow| *flow).collect();
        flows.reverse();
        Ok((flows, self.remainder))
    }
}

impl Remainder {
    fn add(&mut self, flow: &Flow) {
        self.flows += 1;
        for Direction { data, .. } in [&flow.upload, &flow.download] {
            self.packets += data.packets;
            self.wire_bytes += data.wire_bytes;
            self.unique_bytes += data.unique_bytes;
        }
    }
}

fn rank(flow: &Flow) -> Rank {
    (payload(flow), Reverse(flow.number))
}

/// Returns the payload of both directions, each byte counted once.
pub(crate) fn payload(flow: &Flow) -> u64 {
    let Flow {
        upload, download, ..
    } = flow;
    upload
        .data
        .unique_bytes
        .saturating_add(download.data.unique_bytes)
}

fn without_chart_data(mut flow: Box<Flow>) -> Box<Flow> {
    flow.drop_chart_data();
    flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    /// Returns a flow of this size with a time series.
    fn flow(number: u64, unique_bytes: u64) -> Flow {
        let mut flow = fixtures::short_flow(number);
        flow.upload.data.unique_bytes = unique_bytes;
        flow
    }

    fn select(flows: &[(u64, u64)]) -> (Vec<Flow>, Remainder, String) {
        let mut lines = Vec::new();
        let ranks = FlowLimits {
            charted: 2,
            listed: 3,
        };
        let mut largest = LargestFlows::new(ranks, Some(&mut lines));
        for (number, bytes) in flows {
            largest.add(Box::new(flow(*number, *bytes))).unwrap();
        }
        let (flows, remainder) = largest.finish().unwrap();
        (flows, remainder, String::from_utf8(lines).unwrap())
    }

    #[test]
    fn sorts_by_payload_and_keeps_few_time_series() {
        let (flows, remainder, _) = select(&[(0, 10), (1, 40), (2, 20), (3, 30), (4, 40)]);
        let numbers: Vec<u64> = flows.iter().map(|flow| flow.number).collect();
        assert_eq!(numbers, [1, 4, 3]);
        let charted: Vec<bool> = flows
            .iter()
            .map(|f| !f.upload.time_series.bins.is_empty())
            .collect();
        assert_eq!(charted, [true, true, false]);
        assert_eq!((remainder.flows, remainder.unique_bytes), (2, 30));
        assert_eq!(
            remainder.packets,
            2 * flows[0].upload.data.packets + 2 * flows[0].download.data.packets
        );
    }

    #[test]
    fn reports_smallest_payload_with_charts() {
        let mut largest = LargestFlows::new(
            FlowLimits {
                charted: 2,
                listed: 3,
            },
            None::<Vec<u8>>,
        );
        let smallest = [(0, 10), (1, 40), (2, 20), (3, 5)].map(|(number, bytes)| {
            largest.add(Box::new(flow(number, bytes))).unwrap();
            largest.charted_payload_min()
        });
        assert_eq!(smallest, [0, 10, 20, 20]);
    }

    #[test]
    fn is_independent_of_the_order_of_flows() {
        let (ascending_order, ..) = select(&[(0, 10), (1, 40), (2, 20), (3, 30)]);
        let (descending_order, ..) = select(&[(3, 30), (2, 20), (1, 40), (0, 10)]);
        assert_eq!(ascending_order, descending_order);
    }

    #[test]
    fn writes_other_flows_as_json_lines() {
        let (_, _, lines) = select(&[(0, 10), (1, 40), (2, 20), (3, 30), (4, 50)]);
        let read: Vec<Flow> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let numbers: Vec<u64> = read.iter().map(|flow| flow.number).collect();
        assert_eq!(numbers, [0, 2]);
        assert!(!lines.contains("time_series"));
    }
}
