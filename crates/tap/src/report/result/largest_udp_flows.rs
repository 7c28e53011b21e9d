// SPDX-License-Identifier: MIT OR Apache-2.0
//! Largest UDP flows of a capture, selected as flows end, in bounded memory. All others are summed.

use super::UdpRemainder;
use longhaul_flow::udp::UdpFlow;
use std::{cmp::Reverse, collections::BTreeMap};

/// Maximum number of UDP flows in `result.json`: 400 bytes each, and up to 100 kB each for QUIC.
const LISTED_MAX: usize = 1000;

/// Sort key: payload, and for equal payload the flow that began first.
type Rank = (u64, Reverse<u64>);

/// Selection of the largest UDP flows.
#[derive(Debug, Clone, Default)]
pub(crate) struct LargestUdpFlows {
    listed: BTreeMap<Rank, UdpFlow>,
    remainder: UdpRemainder,
}

impl LargestUdpFlows {
    /// Adds a finished flow.
    pub(crate) fn add(&mut self, flow: UdpFlow) {
        let rank = (flow.payload_bytes(), Reverse(flow.number));
        self.listed.insert(rank, flow);
        if self.listed.len() > LISTED_MAX
            && let Some((_, smallest)) = self.listed.pop_first()
        {
            self.remainder.add(&smallest);
        }
    }

    /// Returns the flows for the result, largest first, and the sum of the others.
    pub(crate) fn finish(self) -> (Vec<UdpFlow>, UdpRemainder) {
        let flows = self.listed.into_values().rev().collect();
        (flows, self.remainder)
    }
}

impl UdpRemainder {
    fn add(&mut self, flow: &UdpFlow) {
        self.flows += 1;
        self.quic_flows += u64::from(flow.quic.is_some());
        for direction in [&flow.upload, &flow.download] {
            self.packets += direction.packets;
            self.wire_bytes += direction.wire_bytes;
            self.payload_bytes += direction.payload_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn lists_the_largest_and_sums_the_others() {
        let mut largest = LargestUdpFlows::default();
        for number in 0..1_002 {
            let mut flow = fixtures::udp_flow(number);
            flow.upload.payload_bytes = number;
            largest.add(flow);
        }
        let each = fixtures::udp_flow(0);
        let (flows, remainder) = largest.finish();
        assert_eq!(flows.len(), 1_000);
        assert_eq!((flows[0].number, flows[999].number), (1_001, 2));
        assert_eq!((remainder.flows, remainder.quic_flows), (2, 2));
        let payload = 1 + 2 * each.download.payload_bytes;
        assert_eq!(remainder.payload_bytes, payload);
        let packets = 2 * (each.upload.packets + each.download.packets);
        assert_eq!(remainder.packets, packets);
    }
}
