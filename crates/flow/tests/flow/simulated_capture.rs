// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures of a simulation, at both ends of the path. The events of [`longhaul_tcpsim::simulation`] become the
//! segments that captures on real hosts would have, so that an analysis can be compared with the truth.

use longhaul_flow::segment::{Endpoint, FlowKey, NO_SCALE, SACK_BLOCKS_MAX, Segment};
use longhaul_netem::Departure;
use longhaul_packet::tcp;
use longhaul_tcpsim::{receiver::Ack, simulation::Observer};
use longhaul_units::Time;
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
};

/// Packet properties that the simulation does not model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketFormat {
    /// Payload of a packet, bytes.
    pub(crate) mss: u32,
    /// Window that every ACK advertises, bytes; at most 1 GiB (RFC 7323 §2.3).
    pub(crate) window: u64,
    /// Whether the capture at the sender sees super-packets or single segments.
    pub(crate) super_packets: bool,
}

/// Captures the segments at both ends in memory: 144 bytes each.
#[derive(Debug)]
pub(crate) struct SimulatedCapture {
    format: PacketFormat,
    flows: Vec<FlowState>,
    /// Segments at the sender and at the receiver, each with the flow's number.
    ends: [Vec<(usize, Segment)>; 2],
}

/// State of a flow from which fields of later packets are made.
#[derive(Debug, Default)]
struct FlowState {
    /// Number of the next new packet.
    next: u64,
    /// Time when each packet was last sent, and its TSecr.
    sent: Vec<(Time, u32)>,
    /// `Last.ACK.sent` in packets, and `TS.Recent` (RFC 7323 §4.3).
    acked: u64,
    recent: u32,
    /// Last TSval that the sender received.
    echo: u32,
    /// ACKs in flight.
    acks: VecDeque<(Ack, Segment)>,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// Initial sequence numbers. Those of the data wrap around early.
const CLIENT_ISN: u32 = u32::MAX - 1_000_000;
const SERVER_ISN: u32 = 7;
/// TSvals at time 0: timestamp clocks of two hosts are unrelated.
const CLIENT_TS: u32 = 1_000;
const SERVER_TS: u32 = 4_000_000_000;
/// Length of the IPv4 and TCP headers with timestamps.
const HEADERS: u32 = 52;
const WINDOW_SCALE: u8 = 14;

impl SimulatedCapture {
    /// Creates a capture without segments.
    pub(crate) fn new(format: PacketFormat) -> Self {
        Self {
            format,
            flows: Vec::new(),
            ends: [Vec::new(), Vec::new()],
        }
    }

    /// Returns the addresses and ports of flow `number`. Its client is the low endpoint.
    pub(crate) fn key(number: usize) -> FlowKey {
        let end = |last, port| Endpoint {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
            port,
        };
        FlowKey {
            low: end(1, 40_000 + number as u16),
            high: end(2, 5_001),
        }
    }

    /// Takes all segments seen at the sender's end, in order of time, with their flows' numbers.
    pub(crate) fn take_at_sender(&mut self) -> Vec<(usize, Segment)> {
        self.take(SENDER)
    }

    /// Takes all segments seen at the receiver's end, in order of time, with their flows' numbers.
    pub(crate) fn take_at_receiver(&mut self) -> Vec<(usize, Segment)> {
        self.take(RECEIVER)
    }

    fn take(&mut self, end: usize) -> Vec<(usize, Segment)> {
        let mut segments = std::mem::take(&mut self.ends[end]);
        segments.sort_by_key(|(_, segment)| segment.at_ns);
        segments
    }

    fn flow_state(&mut self, flow: usize) -> &mut FlowState {
        if self.flows.len() <= flow {
            self.flows.resize_with(flow + 1, FlowState::default);
        }
        &mut self.flows[flow]
    }

    fn capture(&mut self, end: usize, flow: usize, segment: Segment) {
        self.ends[end].push((flow, segment));
    }

    fn seq(&self, packet: u64) -> u32 {
        let bytes = packet.wrapping_mul(u64::from(self.format.mss)) as u32;
        CLIENT_ISN.wrapping_add(1).wrapping_add(bytes)
    }

    fn window(&self) -> u16 {
        (self.format.window >> WINDOW_SCALE).min(u64::from(u16::MAX)) as u16
    }

    fn data(&self, at: Time, first: u64, count: u32, tsval: u32, tsecr: u32) -> Segment {
        Segment {
            seq: self.seq(first),
            ack: SERVER_ISN + 1,
            payload: count * self.format.mss,
            wire_bytes: count * (self.format.mss + HEADERS),
            wire_segments: count as u16,
            window: u16::MAX,
            flags: tcp::ACK,
            tsval,
            tsecr,
            ..empty_segment(at, true)
        }
    }

    fn ack(&self, ack: &Ack, tsecr: u32) -> Segment {
        let mut sack = [(0, 0); SACK_BLOCKS_MAX];
        let blocks = ack.blocks.iter().filter(|block| block.count > 0);
        let mut sack_blocks = 0;
        for (entry, block) in sack.iter_mut().zip(blocks) {
            let left = ack.una + u64::from(block.offset);
            *entry = (self.seq(left), self.seq(left + u64::from(block.count)));
            sack_blocks += 1;
        }
        Segment {
            seq: SERVER_ISN + 1,
            ack: self.seq(ack.una),
            wire_bytes: HEADERS
                + if sack_blocks > 0 {
                    4 + 8 * u32::from(sack_blocks)
                } else {
                    0
                },
            window: self.window(),
            flags: tcp::ACK,
            tsval: tsval_at(SERVER_TS, ack.at),
            tsecr,
            sack_blocks,
            sack,
            ..empty_segment(ack.at, false)
        }
    }

    fn syn(&self, at: Time, from_client: bool, flags: u8) -> Segment {
        let (seq, tsval) = if from_client {
            (CLIENT_ISN, tsval_at(CLIENT_TS, at))
        } else {
            (SERVER_ISN, tsval_at(SERVER_TS, at))
        };
        Segment {
            seq,
            ack: if from_client { 0 } else { CLIENT_ISN + 1 },
            wire_bytes: 60,
            window: u16::MAX,
            flags,
            window_scale: WINDOW_SCALE,
            mss: (self.format.mss + 12) as u16,
            sack_permitted: true,
            tsval,
            ..empty_segment(at, from_client)
        }
    }
}

impl Observer for SimulatedCapture {
    /// The simulation only has the times of the SYN and of the SYN/ACK's arrival. Each takes half of the round trip.
    fn established(&mut self, now: Time, flow: usize, syn: Time) {
        let middle = syn + Time::from_nanos(now.since(syn).as_nanos() / 2);
        let (first, second) = (
            self.syn(syn, true, tcp::SYN),
            self.syn(middle, false, tcp::SYN | tcp::ACK),
        );
        let third = self.data(
            now,
            0,
            0,
            tsval_at(CLIENT_TS, now),
            tsval_at(SERVER_TS, middle),
        );
        let third = Segment {
            wire_bytes: HEADERS,
            wire_segments: 1,
            ..third
        };
        let state = self.flow_state(flow);
        (state.echo, state.recent) = (third.tsecr, third.tsval);
        let at = |segment: Segment, at: Time| Segment {
            at_ns: at.as_nanos(),
            ..segment
        };
        let arrival = now + middle.since(syn);
        for (end, times) in [
            (SENDER, [syn, now, now]),
            (RECEIVER, [middle, middle, arrival]),
        ] {
            for (segment, time) in [first, second, third].into_iter().zip(times) {
                self.capture(end, flow, at(segment, time));
            }
        }
    }

    fn sent(&mut self, now: Time, flow: usize, first: u64, count: u32) {
        let end = first + u64::from(count);
        let state = self.flow_state(flow);
        state.next = state.next.max(end);
        let next = state.next;
        let (tsval, tsecr) = (tsval_at(CLIENT_TS, now), state.echo);
        state.sent.resize(next as usize, (now, tsecr));
        state.sent[first as usize..end as usize].fill((now, tsecr));
        let packets_per_segment = if self.format.super_packets { count } else { 1 };
        let mut packet = first;
        while packet < end {
            let segment = self.data(now, packet, packets_per_segment, tsval, tsecr);
            self.capture(SENDER, flow, segment);
            packet += u64::from(packets_per_segment);
        }
    }

    fn arrived(&mut self, flow: usize, first: u64, train: &Departure) {
        for index in 0..train.count {
            let packet = first + u64::from(index);
            let (sent, tsecr) = self.flows[flow].sent[packet as usize];
            let segment = self.data(train.at(index), packet, 1, tsval_at(CLIENT_TS, sent), tsecr);
            self.capture(RECEIVER, flow, segment);
        }
    }

    fn acknowledged(&mut self, flow: usize, ack: &Ack) {
        let state = self.flow_state(flow);
        if ack.una > state.acked {
            state.recent = tsval_at(CLIENT_TS, state.sent[state.acked as usize].0);
            state.acked = ack.una;
        }
        let recent = state.recent;
        let segment = self.ack(ack, recent);
        self.flow_state(flow).acks.push_back((*ack, segment));
        self.capture(RECEIVER, flow, segment);
    }

    /// The reverse path may lose ACKs, but does not reorder them.
    fn ack_arrived(&mut self, flow: usize, ack: &Ack) {
        let is_same = |sent: &Ack| (sent.una, sent.blocks) == (ack.una, ack.blocks);
        let state = self.flow_state(flow);
        while let Some((sent, segment)) = state.acks.pop_front() {
            if is_same(&sent) {
                state.echo = segment.tsval;
                let at_ns = ack.at.as_nanos();
                return self.capture(SENDER, flow, Segment { at_ns, ..segment });
            }
        }
    }
}

/// Returns the TSval at `at` of a clock that is `origin` at time 0 and ticks each millisecond, as Linux's does.
fn tsval_at(origin: u32, at: Time) -> u32 {
    origin.wrapping_add((at.as_nanos() / 1_000_000) as u32)
}

fn empty_segment(at: Time, from_low: bool) -> Segment {
    Segment {
        at_ns: at.as_nanos(),
        wire_segments: 1,
        from_low,
        window_scale: NO_SCALE,
        has_timestamps: true,
        ..Segment::default()
    }
}
