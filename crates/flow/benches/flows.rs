// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate at which one core analyses segments, all series on: `cargo bench -p longhaul-flow --bench flows`.
//!
//! Transfers of 10 Gbit/s over 60 ms in segments of 1,448 bytes with timestamps; every second segment is acknowledged.
//! Bins of 1 ms and 1 s go to a sink that counts. Segments are generated and analysed 256 at a time, and only the
//! analysis is timed. The slowest tenth, in which the machine did other work, is left out. Each case runs three times;
//! printed are the median and the extremes.

#![allow(missing_docs, reason = "a program")]

use longhaul_flow::bin::Bin;
use longhaul_flow::record::Flow;
use longhaul_flow::segment::{
    CapturePoint, CapturedSegment, Endpoint, FlowKey, NO_SCALE, SACK_BLOCKS_MAX, Segment,
};
use longhaul_flow::{Flows, Settings, Sink};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const SEGMENTS: usize = 3_000_000;
const BATCH: usize = 256;
const RUNS: usize = 3;
const SIZE: u32 = 1_448;
/// Time between data segments, ns.
const GAP_NS: u64 = 1_200;
const RTT_NS: u64 = 60_000_000;

/// Traffic of one case.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    flows: u16,
    /// Number of capture points that see each flow.
    capture_points: u32,
    /// Loss rate, as one in so many segments; 0 is none.
    loss: u32,
    /// Segments of a flow before another takes its place.
    length: u32,
}

const CASES: [Case; 6] = [
    Case {
        name: "one flow",
        flows: 1,
        capture_points: 1,
        loss: 0,
        length: u32::MAX,
    },
    Case {
        name: "one flow, lossy",
        flows: 1,
        capture_points: 1,
        loss: 1_000,
        length: u32::MAX,
    },
    Case {
        name: "one flow, seen at both ends",
        flows: 1,
        capture_points: 2,
        loss: 0,
        length: u32::MAX,
    },
    Case {
        name: "100 flows",
        flows: 100,
        capture_points: 1,
        loss: 0,
        length: u32::MAX,
    },
    Case {
        name: "10,000 flows",
        flows: 10_000,
        capture_points: 1,
        loss: 0,
        length: u32::MAX,
    },
    Case {
        name: "short flows",
        flows: 100,
        capture_points: 1,
        loss: 0,
        length: 8,
    },
];

fn main() {
    // An argument selects cases, for a profiler.
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let filter = filter.unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&filter)) {
        let mut times: Vec<f64> = (0..RUNS).map(|_| run(case)).collect();
        times.sort_by(f64::total_cmp);
        let [low, median, high] = [0, RUNS / 2, RUNS - 1].map(|i| times[i]);
        println!(
            "{:<30} {median:6.1} ns a segment ({low:.1} to {high:.1}), {:.1} M/s",
            case.name,
            1e3 / median
        );
    }
}

/// Returns the time a segment, ns.
fn run(case: &Case) -> f64 {
    let (mut flows, mut sink) = (Flows::new(Settings::default()), Counter::default());
    let mut transfers = Transfers::new(*case);
    let (mut load, mut times, mut number) = (Vec::with_capacity(BATCH + 8), Vec::new(), 0);
    while (number as usize) < SEGMENTS {
        load.clear();
        while load.len() < BATCH {
            transfers.step(&mut load);
        }
        for (number, item) in (number..).zip(&mut load) {
            item.number = number;
        }
        number += load.len() as u64;
        let begin = Instant::now();
        flows.process_segments(&load, &mut sink);
        times.push(begin.elapsed().as_nanos() as f64 / load.len() as f64);
    }
    flows.finish(&mut sink);
    assert!(sink.bins > 0 && sink.flows >= u32::from(case.flows) * case.capture_points);
    times.sort_by(f64::total_cmp);
    let usual = &times[..times.len() * 9 / 10];
    usual.iter().sum::<f64>() / usual.len() as f64
}

#[derive(Default)]
struct Counter {
    bins: u64,
    flows: u32,
}

impl Sink for Counter {
    fn receive_bin(&mut self, _: u64, _: bool, _: usize, _: u64, bin: &Bin) {
        self.bins += u64::from(bin.data_segments > 0);
    }

    fn receive_flow(&mut self, _: Flow) {
        self.flows += 1;
    }
}

/// All flows. They take turns at random, two segments and an ACK at a time.
struct Transfers {
    case: Case,
    /// Segments sent by each flow, and the number of flows in its place before.
    sent: Vec<(u32, u32)>,
    steps: u64,
    random: u64,
}

impl Transfers {
    fn new(case: Case) -> Self {
        Self {
            case,
            sent: vec![(0, 0); usize::from(case.flows)],
            steps: 0,
            random: 88_172_645_463_325_252,
        }
    }

    fn step(&mut self, batch: &mut Vec<CapturedSegment>) {
        self.steps += 1;
        let at_ns = self.steps * 2 * GAP_NS;
        let flow = self.flow();
        let slot = usize::from(flow);
        let (first, before) = &mut self.sent[usize::from(flow)];
        if *first >= self.case.length {
            (*first, *before) = (0, *before + 1);
        }
        let (first, flow) = (*first, key(flow, *before));
        self.sent[slot].0 += 2;
        for i in 0..2 {
            let at_ns = at_ns + u64::from(i) * GAP_NS;
            self.capture(batch, &flow, data(at_ns, first + i));
            self.repeat(batch, &flow, at_ns, first + i);
        }
        let in_flight = (RTT_NS / GAP_NS) as u32 / u32::from(self.case.flows) / 2 * 2;
        let in_flight = in_flight.min(self.case.length / 2);
        if first > in_flight {
            self.capture(
                batch,
                &flow,
                self.ack(at_ns + GAP_NS + 10, first + 2 - in_flight),
            );
        }
    }

    /// Returns a random flow, by xorshift64 (Marsaglia 2003).
    fn flow(&mut self) -> u16 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as u16 % self.case.flows
    }

    fn capture(&self, batch: &mut Vec<CapturedSegment>, flow: &FlowKey, segment: Segment) {
        for capture_point in 0..self.case.capture_points {
            batch.push(CapturedSegment {
                number: 0,
                capture_point: CapturePoint(capture_point),
                key: *flow,
                segment,
            });
        }
    }

    /// Retransmits a lost segment a round trip later.
    fn repeat(&self, batch: &mut Vec<CapturedSegment>, flow: &FlowKey, at_ns: u64, number: u32) {
        let lost = number.wrapping_sub((RTT_NS / GAP_NS) as u32 + 10);
        if self.case.loss > 0 && number > lost && lost.is_multiple_of(self.case.loss) {
            self.capture(batch, flow, data(at_ns + 5, lost));
        }
    }

    /// Acknowledges all segments up to `number`, except those lost within the last round trip.
    fn ack(&self, at_ns: u64, number: u32) -> Segment {
        let round = (RTT_NS / GAP_NS) as u32;
        let Some(loss) = std::num::NonZeroU32::new(self.case.loss).filter(|_| number > round + 20)
        else {
            return ack_segment(at_ns, number, &[]);
        };
        let gap = (number - round - 10).div_ceil(loss.get()) * loss.get();
        if gap >= number {
            return ack_segment(at_ns, number, &[]);
        }
        let mut blocks = [(0, 0); 3];
        let last = (number - 1) / loss.get() * loss.get();
        for (i, block) in (0..).zip(&mut blocks) {
            let start = last.saturating_sub(i * loss.get());
            let end = if i == 0 { number } else { start + loss.get() };
            *block = (start + 1, end);
        }
        let count = ((last - gap) / loss.get() + 1).min(3) as usize;
        ack_segment(at_ns, gap, &blocks[..count])
    }
}

fn key(flow: u16, before: u32) -> FlowKey {
    let end = |address, port| Endpoint {
        address: IpAddr::V4(Ipv4Addr::from_bits(address)),
        port,
    };
    FlowKey {
        low: end(10 << 24 | before, 20_000 + flow),
        high: end(11 << 24, 5_201),
    }
}

fn data(at_ns: u64, number: u32) -> Segment {
    Segment {
        seq: byte(number),
        ack: 1,
        payload: SIZE,
        wire_bytes: SIZE + 52,
        ..bare(at_ns, true)
    }
}

fn ack_segment(at_ns: u64, number: u32, blocks: &[(u32, u32)]) -> Segment {
    let mut sack = [(0, 0); SACK_BLOCKS_MAX];
    for (to, from) in sack.iter_mut().zip(blocks) {
        *to = (byte(from.0), byte(from.1));
    }
    Segment {
        seq: 1,
        ack: byte(number),
        wire_bytes: 52,
        sack_blocks: blocks.len() as u8,
        sack,
        ..bare(at_ns, false)
    }
}

fn byte(number: u32) -> u32 {
    number.wrapping_mul(SIZE)
}

fn bare(at_ns: u64, from_low: bool) -> Segment {
    Segment {
        at_ns,
        wire_segments: 1,
        window: 60_000,
        flags: longhaul_packet::tcp::ACK,
        from_low,
        window_scale: NO_SCALE,
        has_timestamps: true,
        tsval: (at_ns / 1_000_000) as u32,
        tsecr: (at_ns.saturating_sub(RTT_NS) / 1_000_000) as u32,
        ip_id: (at_ns / GAP_NS) as u16,
        ttl: 64,
        ..Segment::default()
    }
}
