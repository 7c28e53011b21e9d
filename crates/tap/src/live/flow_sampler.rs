// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampling of the flows of an interface, second by second.

use longhaul_flow::{
    Flows, Settings, Sink,
    bin::Bin,
    record::Flow,
    segment::{CapturePoint, Endpoint, FlowKey, Segment},
};
use std::collections::{BTreeMap, HashMap};

/// One second, ns.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Maximum number of flows on an interface: 40 MB.
const FLOWS_MAX: usize = 4096;
/// Memory for unacknowledged packets of all flows, bytes: enough for half a million packets.
const TABLES_MAX: usize = 64 << 20;

/// Snapshot of an interface's flows in one second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Index of the interface, in the order of the command line.
    pub(super) interface: usize,
    /// Start of the second, seconds since 1970.
    pub(super) second: u64,
    /// Flows that were active, in order of their first packets.
    pub(super) flows: Vec<FlowSample>,
    /// Total number of packets that the kernel dropped.
    pub(super) dropped: u64,
}

/// Activity of a flow in one second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowSample {
    pub(super) number: u64,
    /// Client and server.
    pub(super) endpoints: [Endpoint; 2],
    /// Upload and download, each with the ACKs for it.
    pub(super) directions: [Bin; 2],
}

/// Sampler of the flows of an interface.
pub(super) struct FlowSampler {
    interface: usize,
    flows: Flows,
    segments: u64,
    collector: BinCollector,
}

/// Bins and finished flows since the last snapshot.
#[derive(Default)]
struct BinCollector {
    bins: BTreeMap<(u64, u64), [Bin; 2]>,
    finished: HashMap<u64, [Endpoint; 2]>,
}

impl Sink for BinCollector {
    fn receive_bin(&mut self, flow: u64, upload: bool, _width: usize, from_ns: u64, bin: &Bin) {
        let pair = self.bins.entry((from_ns / SECOND, flow)).or_default();
        pair[usize::from(!upload)].merge(bin);
    }

    fn receive_flow(&mut self, flow: Flow) {
        self.finished
            .insert(flow.number, [flow.client, flow.server]);
    }
}

impl FlowSampler {
    pub(super) fn new(interface: usize) -> Self {
        let settings = Settings {
            bin_widths_ns: vec![SECOND],
            flows_max: FLOWS_MAX,
            tables_max_bytes: TABLES_MAX,
            // Time series are not used here.
            time_series_width_ns: SECOND,
            time_series_bins_max: 2,
            packet_window_flows_max: 0,
            ..Settings::default()
        };
        Self {
            interface,
            flows: Flows::new(settings),
            segments: 0,
            collector: BinCollector::default(),
        }
    }

    pub(super) fn process_segment(&mut self, key: &FlowKey, segment: &Segment) {
        let capture_point = CapturePoint(self.interface as u32);
        self.flows.process_segment(
            self.segments,
            capture_point,
            key,
            segment,
            &mut self.collector,
        );
        self.segments += 1;
    }

    /// Returns the snapshots of all seconds before `end` (seconds since 1970), for which no more segments will come.
    pub(super) fn take_snapshots(&mut self, end: u64, dropped: u64) -> Vec<Snapshot> {
        self.flows.close_bins(end * SECOND, &mut self.collector);
        let later = self.collector.bins.split_off(&(end, 0));
        let bins = std::mem::replace(&mut self.collector.bins, later);
        let mut endpoints = std::mem::take(&mut self.collector.finished);
        endpoints.extend(
            self.flows
                .active_flows()
                .map(|flow| (flow.number, flow.ends)),
        );
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for ((second, number), pair) in bins {
            if snapshots
                .last()
                .is_none_or(|snapshot| snapshot.second != second)
            {
                snapshots.push(self.empty_snapshot(second, dropped));
            }
            if let (Some(snapshot), Some(endpoints)) =
                (snapshots.last_mut(), endpoints.get(&number))
            {
                let endpoints = *endpoints;
                snapshot.flows.push(FlowSample {
                    number,
                    endpoints,
                    directions: pair,
                });
            }
        }
        if snapshots
            .last()
            .is_none_or(|snapshot| snapshot.second + 1 != end)
        {
            snapshots.push(self.empty_snapshot(end.saturating_sub(1), dropped));
        }
        snapshots
    }

    fn empty_snapshot(&self, second: u64, dropped: u64) -> Snapshot {
        Snapshot {
            interface: self.interface,
            second,
            flows: Vec::new(),
            dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::segment::NO_SCALE;
    use longhaul_packet::tcp::ACK;

    fn end(port: u16) -> Endpoint {
        Endpoint {
            address: [10, 0, 0, 1].into(),
            port,
        }
    }

    fn data(at_ns: u64, seq: u32, from_low: bool) -> Segment {
        Segment {
            at_ns,
            seq,
            ack: 1,
            payload: 1_000,
            wire_bytes: 1_040,
            wire_segments: 1,
            window: 1_000,
            flags: ACK,
            from_low,
            window_scale: NO_SCALE,
            ..Segment::default()
        }
    }

    #[test]
    fn returns_each_second_once() {
        let key = FlowKey {
            low: end(1),
            high: end(2),
        };
        let mut sampler = FlowSampler::new(3);
        sampler.process_segment(&key, &data(10 * SECOND + 1, 1, false));
        sampler.process_segment(&key, &data(10 * SECOND + 2, 1_001, false));
        sampler.process_segment(&key, &data(11 * SECOND + 5, 2_001, false));
        let snapshots = sampler.take_snapshots(11, 7);
        let [snapshot] = snapshots.as_slice() else {
            panic!("{snapshots:?}");
        };
        assert_eq!(
            (snapshot.interface, snapshot.second, snapshot.dropped),
            (3, 10, 7)
        );
        let [flow] = snapshot.flows.as_slice() else {
            panic!("{snapshot:?}");
        };
        // The high end sent first, so it is the client.
        assert_eq!((flow.number, flow.endpoints), (0, [end(2), end(1)]));
        assert_eq!(
            flow.directions.map(|direction| direction.data_bytes),
            [2_000, 0]
        );

        let snapshots = sampler.take_snapshots(12, 7);
        assert_eq!(snapshots[0].flows[0].directions[0].data_bytes, 1_000);
        let snapshots = sampler.take_snapshots(13, 7);
        assert_eq!((snapshots.len(), snapshots[0].second), (1, 12));
        assert!(snapshots[0].flows.is_empty(), "{snapshots:?}");
    }
}
