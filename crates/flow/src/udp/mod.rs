// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP flows: counts of each direction, and what the headers of QUIC say without its keys.
//!
//! [`decode_datagram`](crate::decode::decode_datagram) makes a [`Datagram`] of a captured frame. [`UdpFlows`] takes the
//! datagrams in order of time and returns each flow when it ends.

mod datagram;
mod flow;
mod handshake;
pub mod quic;
mod record;
mod spin_bit;

use crate::segment::{CapturePoint, FlowKey};
pub use datagram::{CapturedDatagram, Datagram};
use flow::FlowState;
pub use record::{Quic, SpinBit, UdpDirection, UdpFlow};
use std::collections::HashMap;

/// Memory of a flow's entry, bytes. The map is between 7/16 and 7/8 full.
const ENTRY_BYTES: usize = 2 * size_of::<((CapturePoint, FlowKey), FlowState)>();

/// All UDP flows of a capture.
#[derive(Debug)]
pub struct UdpFlows {
    flows: HashMap<(CapturePoint, FlowKey), FlowState>,
    memory_max_bytes: usize,
    /// Memory of all flows, bytes.
    used_bytes: usize,
}

impl UdpFlows {
    /// Creates the table, without flows. If flows use more than `memory_max_bytes`, half of them is ended: those
    /// without packets for the longest time. If they send again, they are new flows.
    #[must_use]
    pub fn new(memory_max_bytes: usize) -> Self {
        Self {
            flows: HashMap::new(),
            memory_max_bytes,
            used_bytes: 0,
        }
    }

    /// Processes a datagram, and passes the flows that end for lack of memory to `receive_flow`.
    pub fn process(&mut self, item: &CapturedDatagram, receive_flow: impl FnMut(UdpFlow)) {
        let id = (item.capture_point, item.key);
        let used_bytes = &mut self.used_bytes;
        let flow = self.flows.entry(id).or_insert_with(|| {
            *used_bytes += ENTRY_BYTES;
            FlowState::new(item)
        });
        let before = flow.heap_bytes();
        flow.process(&item.datagram);
        self.used_bytes += flow.heap_bytes() - before;
        if self.used_bytes > self.memory_max_bytes && self.flows.len() > 1 {
            self.end_idle_half(receive_flow);
        }
    }

    /// Passes all flows to `receive_flow`, in order of their numbers, at the end of the capture.
    pub fn finish(self, receive_flow: impl FnMut(UdpFlow)) {
        receive_in_order(self.flows.into_values().collect(), receive_flow);
    }

    /// Ends the half of the flows that was seen longest ago.
    #[cold]
    fn end_idle_half(&mut self, receive_flow: impl FnMut(UdpFlow)) {
        let mut ages: Vec<_> = self.flows.values().map(FlowState::age).collect();
        let middle = (ages.len() - 1) / 2;
        let (_, &mut newest_ended, _) = ages.select_nth_unstable(middle);
        let is_idle = |flow: &FlowState| flow.age() <= newest_ended;
        let ended = self.flows.extract_if(|_, flow| is_idle(flow));
        let ended: Vec<_> = ended.map(|(_, flow)| flow).collect();
        let freed = ended.iter().map(|flow| ENTRY_BYTES + flow.heap_bytes());
        self.used_bytes -= freed.sum::<usize>();
        receive_in_order(ended, receive_flow);
    }
}

fn receive_in_order(mut flows: Vec<FlowState>, receive_flow: impl FnMut(UdpFlow)) {
    flows.sort_unstable_by_key(FlowState::number);
    flows
        .into_iter()
        .map(FlowState::finish)
        .for_each(receive_flow);
}

#[cfg(test)]
mod tests {
    use super::quic::Header;
    use super::*;
    use crate::segment::Endpoint;

    const CLIENT: u16 = 50_000;

    fn end(port: u16) -> Endpoint {
        Endpoint {
            address: [10, 0, 0, 1].into(),
            port,
        }
    }

    /// Returns a datagram of 100 bytes from one port to another, at its number in ns.
    fn datagram(number: u64, from: u16, to: u16) -> CapturedDatagram {
        CapturedDatagram {
            number,
            capture_point: CapturePoint(0),
            key: FlowKey {
                low: end(from.min(to)),
                high: end(from.max(to)),
            },
            datagram: Datagram {
                at_ns: number,
                from_low: from < to,
                wire_datagrams: 1,
                wire_bytes: 128,
                payload_bytes: 100,
                quic: None,
            },
        }
    }

    fn flows(memory_max_bytes: usize, items: &[CapturedDatagram]) -> Vec<UdpFlow> {
        let (mut flows, mut ended) = (UdpFlows::new(memory_max_bytes), Vec::new());
        for item in items {
            flows.process(item, |flow| ended.push(flow));
            assert!(flows.flows.len() == 1 || flows.used_bytes <= memory_max_bytes);
        }
        flows.finish(|flow| ended.push(flow));
        ended
    }

    #[test]
    fn counts_each_direction() {
        let items = [
            datagram(1, CLIENT, 443),
            datagram(2, 443, CLIENT),
            datagram(5, 443, CLIENT),
            datagram(9, CLIENT, 53),
        ];
        let [first, second] = &flows(usize::MAX, &items)[..] else {
            panic!("two flows");
        };
        assert_eq!(
            (first.number, first.client, first.server),
            (1, end(CLIENT), end(443))
        );
        assert_eq!((first.first_ns, first.last_ns), (1, 5));
        let download = UdpDirection {
            packets: 2,
            wire_datagrams: 2,
            wire_bytes: 256,
            payload_bytes: 200,
            first_ns: Some(2),
            last_ns: Some(5),
        };
        assert_eq!((first.upload.packets, first.download), (1, download));
        assert_eq!(
            (second.number, second.download),
            (9, UdpDirection::default())
        );
    }

    #[test]
    fn client_sent_the_first_datagram_unless_its_port_is_a_servers() {
        let client = |from, to| flows(usize::MAX, &[datagram(1, from, to)])[0].client.port;
        assert_eq!(client(CLIENT, 443), CLIENT);
        assert_eq!(client(443, CLIENT), CLIENT);
        assert_eq!(client(CLIENT, 4_433), CLIENT);
        assert_eq!(client(4_433, CLIENT), 4_433);
    }

    #[test]
    fn quic_begins_with_a_long_header() {
        let with = |number, quic| {
            let mut item = datagram(number, CLIENT, 443);
            item.datagram.quic = Some(quic);
            item
        };
        let short = |number| with(number, Header::Short { spin: false });
        let long = |version| with(2, Header::Long { version });
        assert_eq!(flows(usize::MAX, &[short(1), short(2)])[0].quic, None);
        let found = flows(
            usize::MAX,
            &[short(1), long(1), long(0x6b33_43cf), short(3)],
        );
        assert_eq!(found[0].quic.as_ref().unwrap().version, "2");
    }

    /// Every packet is in one of the flows, and the flow that never pauses is one flow.
    #[test]
    fn flows_seen_longest_ago_end_if_memory_is_short() {
        let items: Vec<_> = (0..20_000)
            .map(|number| match number % 2 {
                0 => datagram(number, CLIENT, 443),
                _ => datagram(number, (1_024 + number) as u16, 53),
            })
            .collect();
        let ended = flows(100 * ENTRY_BYTES, &items);
        assert_eq!(ended.len(), 1 + 10_000);
        let packets: u64 = ended.iter().map(|flow| flow.upload.packets).sum();
        assert_eq!(packets, 20_000);
        let longest = ended.iter().map(|flow| flow.upload.packets).max();
        assert_eq!(longest, Some(10_000));
    }

    #[test]
    fn any_memory_keeps_the_flow_of_the_last_datagram() {
        let items: Vec<_> = (1..9).map(|number| datagram(number, CLIENT, 53)).collect();
        let ended = flows(0, &items);
        assert_eq!((ended.len(), ended[0].upload.packets), (1, 8));
    }
}
