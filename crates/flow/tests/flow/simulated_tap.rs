// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tap at each end of a simulated path: the segments of [`longhaul_tcpsim::simulation`] as captures of
//! real hosts would have them, so that an analysis can be held against what is known.

use longhaul_flow::segment::{Endpoint, FlowKey, NO_SCALE, SACK_BLOCKS_MAX, Segment};
use longhaul_netem::Departure;
use longhaul_packet::tcp;
use longhaul_tcpsim::{receiver::Ack, simulation::Observer};
use longhaul_units::Time;
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
};

/// What the simulation does not say but packets do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketFormat {
    /// Payload of a packet, bytes.
    pub(crate) mss: u32,
    /// The window that every ACK announces, bytes; at most 1 GiB (RFC 7323 §2.3).
    pub(crate) window: u64,
    /// Super-packets as they leave the sender's stack; else each segment by itself.
    pub(crate) super_packets: bool,
}

/// Segments at both ends, kept in memory: 144 bytes each.
#[derive(Debug)]
pub(crate) struct SimulatedTap {
    format: PacketFormat,
    flows: Vec<FlowState>,
    /// At the sender and at the receiver, with the flow's number.
    ends: [Vec<(usize, Segment)>; 2],
}

/// What packets of a flow repeat of earlier ones.
#[derive(Debug, Default)]
struct FlowState {
    next: u64,
    /// When each packet was last sent.
    sent: Vec<Time>,
    /// `Last.ACK.sent` in packets, and `TS.Recent` (RFC 7323 §4.3).
    acked: u64,
    recent: u32,
    /// The last TSval that the sender got.
    echo: u32,
    /// ACKs under way.
    acks: VecDeque<(Ack, Segment)>,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// First sequence numbers: the data's wraps early.
const CLIENT_ISN: u32 = u32::MAX - 1_000_000;
const SERVER_ISN: u32 = 7;
/// Time stamps of two hosts have nothing to do with each other.
const CLIENT_TS: u32 = 1_000;
const SERVER_TS: u32 = 4_000_000_000;
/// IPv4 and TCP with time stamps.
const HEADERS: u32 = 52;
const SCALE: u8 = 14;

impl SimulatedTap {
    /// Nothing seen yet.
    pub(crate) fn new(look: PacketFormat) -> Self {
        Self {
            format: look,
            flows: Vec::new(),
            ends: [Vec::new(), Vec::new()],
        }
    }

    /// The addresses of flow `number`; its client is the lesser end.
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

    /// All segments that the senders' tap saw, in order of time, with their flows' numbers.
    pub(crate) fn take_at_sender(&mut self) -> Vec<(usize, Segment)> {
        self.take(SENDER)
    }

    /// Likewise at the receivers' end.
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
        (self.format.window >> SCALE).min(u64::from(u16::MAX)) as u16
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
        for (place, block) in sack.iter_mut().zip(blocks) {
            let left = ack.una + u64::from(block.offset);
            *place = (self.seq(left), self.seq(left + u64::from(block.count)));
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
            tsval: stamp(SERVER_TS, ack.at),
            tsecr,
            sack_blocks,
            sack,
            ..empty_segment(ack.at, false)
        }
    }

    fn syn(&self, at: Time, from_client: bool, flags: u8) -> Segment {
        let (seq, tsval) = match from_client {
            true => (CLIENT_ISN, stamp(CLIENT_TS, at)),
            false => (SERVER_ISN, stamp(SERVER_TS, at)),
        };
        Segment {
            seq,
            ack: if from_client { 0 } else { CLIENT_ISN + 1 },
            wire_bytes: 60,
            window: u16::MAX,
            flags,
            window_scale: SCALE,
            mss: (self.format.mss + 12) as u16,
            sack_permitted: true,
            tsval,
            ..empty_segment(at, from_client)
        }
    }
}

impl Observer for SimulatedTap {
    /// The simulation has one time for the whole handshake: the SYN/ACK is given half of it.
    fn established(&mut self, now: Time, flow: usize, syn: Time) {
        let middle = syn + Time::from_nanos(now.since(syn).as_nanos() / 2);
        let (first, second) = (
            self.syn(syn, true, tcp::SYN),
            self.syn(middle, false, tcp::SYN | tcp::ACK),
        );
        let third = self.data(now, 0, 0, stamp(CLIENT_TS, now), stamp(SERVER_TS, middle));
        let third = Segment {
            wire_bytes: HEADERS,
            wire_segments: 1,
            ..third
        };
        let talk = self.flow_state(flow);
        (talk.echo, talk.recent) = (third.tsecr, third.tsval);
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
        let talk = self.flow_state(flow);
        talk.next = talk.next.max(end);
        let next = talk.next;
        talk.sent.resize(next as usize, now);
        talk.sent[first as usize..end as usize].fill(now);
        let (tsval, tsecr) = (stamp(CLIENT_TS, now), talk.echo);
        let each = if self.format.super_packets { count } else { 1 };
        let mut packet = first;
        while packet < end {
            let segment = self.data(now, packet, each, tsval, tsecr);
            self.capture(SENDER, flow, segment);
            packet += u64::from(each);
        }
    }

    fn arrived(&mut self, flow: usize, first: u64, train: &Departure) {
        for index in 0..train.count {
            let packet = first + u64::from(index);
            let talk = &self.flows[flow];
            let tsval = stamp(CLIENT_TS, talk.sent[packet as usize]);
            let segment = self.data(train.at(index), packet, 1, tsval, talk.echo);
            self.capture(RECEIVER, flow, segment);
        }
    }

    fn acknowledged(&mut self, flow: usize, ack: &Ack) {
        let talk = self.flow_state(flow);
        if ack.una > talk.acked {
            talk.recent = stamp(CLIENT_TS, talk.sent[talk.acked as usize]);
            talk.acked = ack.una;
        }
        let recent = talk.recent;
        let segment = self.ack(ack, recent);
        self.flow_state(flow).acks.push_back((*ack, segment));
        self.capture(RECEIVER, flow, segment);
    }

    /// The way back may lose ACKs but keeps their order.
    fn ack_arrived(&mut self, flow: usize, ack: &Ack) {
        let same = |sent: &Ack| (sent.una, sent.blocks) == (ack.una, ack.blocks);
        let talk = self.flow_state(flow);
        while let Some((sent, segment)) = talk.acks.pop_front() {
            if same(&sent) {
                talk.echo = segment.tsval;
                let at_ns = ack.at.as_nanos();
                return self.capture(SENDER, flow, Segment { at_ns, ..segment });
            }
        }
    }
}

/// A TSval of a clock that began at `origin` and ticks each millisecond, as Linux's does.
fn stamp(origin: u32, at: Time) -> u32 {
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
