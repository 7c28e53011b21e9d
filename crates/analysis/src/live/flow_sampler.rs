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
    bins: BinCollector,
}

/// Bins and finished flows since the last snapshot.
#[derive(Default)]
struct BinCollector {
    bins: BTreeMap<(u64, u64), [Bin; 2]>,
    finished: HashMap<u64, [Endpoint; 2]>,
}

impl Sink for BinCollector {
    fn bin(&mut self, flow: u64, upload: bool, _width: usize, from_ns: u64, bin: &Bin) {
        let ways = self.bins.entry((from_ns / SECOND, flow)).or_default();
        ways[usize::from(!upload)].merge(bin);
    }

    fn flow(&mut self, flow: Flow) {
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
            bins: BinCollector::default(),
        }
    }

    pub(super) fn segment(&mut self, key: &FlowKey, segment: &Segment) {
        let vantage = CapturePoint(self.interface as u32);
        self.flows
            .segment(self.segments, vantage, key, segment, &mut self.bins);
        self.segments += 1;
    }

    /// Returns the snapshots of all seconds before `end` (seconds since 1970), for which no more segments will come.
    pub(super) fn take_snapshots(&mut self, end: u64, dropped: u64) -> Vec<Snapshot> {
        self.flows.close_bins(end * SECOND, &mut self.bins);
        let later = self.bins.bins.split_off(&(end, 0));
        let bins = std::mem::replace(&mut self.bins.bins, later);
        let mut ends = std::mem::take(&mut self.bins.finished);
        ends.extend(
            self.flows
                .active_flows()
                .map(|flow| (flow.number, flow.ends)),
        );
        let mut looks: Vec<Snapshot> = Vec::new();
        for ((second, number), ways) in bins {
            if looks.last().is_none_or(|look| look.second != second) {
                looks.push(self.empty_snapshot(second, dropped));
            }
            if let (Some(look), Some(ends)) = (looks.last_mut(), ends.get(&number)) {
                let ends = *ends;
                look.flows.push(FlowSample {
                    number,
                    endpoints: ends,
                    directions: ways,
                });
            }
        }
        if looks.last().is_none_or(|look| look.second + 1 != end) {
            looks.push(self.empty_snapshot(end.saturating_sub(1), dropped));
        }
        looks
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
        let mut watch = FlowSampler::new(3);
        watch.segment(&key, &data(10 * SECOND + 1, 1, false));
        watch.segment(&key, &data(10 * SECOND + 2, 1_001, false));
        watch.segment(&key, &data(11 * SECOND + 5, 2_001, false));
        let looks = watch.take_snapshots(11, 7);
        let [look] = looks.as_slice() else {
            panic!("{looks:?}");
        };
        assert_eq!((look.interface, look.second, look.dropped), (3, 10, 7));
        let [flow] = look.flows.as_slice() else {
            panic!("{look:?}");
        };
        // The high end sent first, so it is the client.
        assert_eq!((flow.number, flow.endpoints), (0, [end(2), end(1)]));
        assert_eq!(flow.directions.map(|way| way.data_bytes), [2_000, 0]);

        let looks = watch.take_snapshots(12, 7);
        assert_eq!(looks[0].flows[0].directions[0].data_bytes, 1_000);
        let looks = watch.take_snapshots(13, 7);
        assert_eq!((looks.len(), looks[0].second), (1, 12));
        assert!(looks[0].flows.is_empty(), "{looks:?}");
    }
}
