// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a line under simulated time, to the nanosecond.

use longhaul_netem::{Delivered, DropCause, Event, Line, LinkConfig, Schedule, Segment, Setting};
use longhaul_units::Time;
use proptest::prelude::*;

/// A line with a log of its events.
struct Sim {
    line: Line,
    out: Vec<(u64, Time)>,
    dropped: Vec<(u64, DropCause)>,
    corrupt: Vec<u64>,
    copies: usize,
}

fn config(settings: &[(&str, &str)]) -> LinkConfig {
    let mut config = LinkConfig::default();
    for (key, value) in settings {
        config.apply(Setting::parse(key, value).unwrap());
    }
    config.check().unwrap();
    config
}

impl Sim {
    fn new(settings: &[(&str, &str)]) -> Self {
        Self::scheduled(settings, &[], 1)
    }

    fn scheduled(settings: &[(&str, &str)], changes: &[&str], seed: u64) -> Self {
        let mut schedule = Schedule::default();
        changes
            .iter()
            .for_each(|change| schedule.add_text(change).unwrap());
        Self {
            line: Line::new(config(settings), schedule, seed, Time::ZERO),
            out: Vec::new(),
            dropped: Vec::new(),
            corrupt: Vec::new(),
            copies: 0,
        }
    }

    fn offer(&mut self, at: Time, packet: u64, len: u32) {
        self.offer_segment(
            at,
            Segment {
                packet,
                index: 0,
                last: true,
                len,
            },
        );
    }

    fn offer_segment(&mut self, at: Time, segment: Segment) {
        let mut events = Vec::new();
        self.line
            .offer(at, segment, None, &mut |event| events.push(event));
        self.log(events);
    }

    fn poll(&mut self, now: Time) {
        let mut events = Vec::new();
        self.line.poll(now, &mut |event| events.push(event));
        self.log(events);
    }

    fn log(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Deliver(Delivered {
                    at,
                    segment,
                    corrupt,
                }) => {
                    self.out.push((segment.packet, at));
                    self.corrupt.extend(corrupt.map(|_| segment.packet));
                }
                Event::Drop { segment, cause } => self.dropped.push((segment.packet, cause)),
                Event::Duplicate(_) => self.copies += 1,
                Event::Verdict(_) => panic!("this line is not observed"),
            }
        }
    }

    fn packets_out(mut self) -> Vec<u64> {
        self.poll(Time::MAX);
        self.out.iter().map(|(packet, _)| *packet).collect()
    }
}

const fn micros(n: u64) -> Time {
    Time::from_micros(n)
}

/// Reference for the queue: departures as a pure function of all arrivals. A segment may wait if the
/// accepted segments before it that have not begun to be sent leave room.
fn reference(
    arrivals: &[(Time, u32)],
    nanos_a_byte: u64,
    limit: u64,
    delay: Time,
) -> Vec<Option<Time>> {
    let mut accepted: Vec<(Time, u32)> = Vec::new();
    let mut free = Time::ZERO;
    let decide = |&(at, len): &(Time, u32)| {
        let waiting: u64 = accepted
            .iter()
            .filter(|(begin, _)| *begin > at)
            .map(|(_, len)| u64::from(*len))
            .sum();
        let begin = free.max(at);
        if waiting + u64::from(len) > limit {
            return None;
        }
        accepted.push((begin, len));
        free = begin + Time::from_nanos(u64::from(len) * nanos_a_byte);
        Some(free + delay)
    };
    arrivals.iter().map(decide).collect()
}

proptest! {
    #[test]
    fn departs_as_the_reference(
        gaps in prop::collection::vec((0_u64..20_000, 40_u32..1500), 1..200),
        limit in 1_500_u64..20_000,
    ) {
        let arrivals: Vec<_> = gaps.iter().scan(Time::ZERO, |at, &(gap, len)| {
            *at += Time::from_nanos(gap);
            Some((*at, len))
        }).collect();
        let queue = format!("{limit}B");
        let mut sim = Sim::new(&[("rate", "1gbit"), ("delay", "1ms"), ("queue", &queue)]);
        for (packet, (at, len)) in arrivals.iter().enumerate() {
            sim.offer(*at, packet as u64, *len);
        }
        sim.poll(Time::MAX);
        let expected = reference(&arrivals, 8, limit, Time::from_millis(1));
        let out: Vec<_> = expected.iter().enumerate()
            .filter_map(|(packet, at)| Some((packet as u64, (*at)?))).collect();
        prop_assert_eq!(sim.out, out);
    }

    /// Deadlines are never too late: a caller that polls at each deadline gets every segment at its
    /// time.
    #[test]
    fn delivers_on_time_when_polled_at_deadlines(
        gaps in prop::collection::vec(0_u64..50_000, 1..100),
        seed in any::<u64>(),
    ) {
        let settings = [("rate", "500mbit"), ("delay", "3ms"), ("jitter", "uniform:1ms,reorder"),
            ("queue", "30p"), ("reorder", "5%:2ms"), ("aqm", "codel:target=100us,interval=1ms")];
        let changes = ["1ms: rate 100mbit", "2ms: delay 1ms"];
        let mut sim = Sim::scheduled(&settings, &changes, seed);
        let mut now = Time::ZERO;
        let mut on_time = Vec::new();
        let wake = |sim: &mut Sim, until: Time, on_time: &mut Vec<(u64, Time)>| {
            while let Some(deadline) = sim.line.next_deadline().filter(|at| *at < until) {
                let before = sim.out.len();
                sim.poll(deadline);
                on_time.extend(sim.out[before..].iter().map(|(packet, _)| (*packet, deadline)));
            }
        };
        for (packet, gap) in gaps.iter().enumerate() {
            now += Time::from_nanos(*gap);
            wake(&mut sim, now, &mut on_time);
            sim.offer(now, packet as u64, 1500);
            sim.poll(now);
        }
        wake(&mut sim, Time::MAX, &mut on_time);
        let late = on_time.iter().find(|event| !sim.out.contains(event));
        prop_assert_eq!(late, None, "polled after it was due");
        prop_assert_eq!(sim.out.len() + sim.dropped.len(), gaps.len());
    }
}

#[test]
fn drains_the_queue_at_the_exact_rate() {
    let mut sim = Sim::new(&[("rate", "10gbit"), ("delay", "13ms"), ("queue", "2000p")]);
    (0..1_000).for_each(|packet| sim.offer(Time::ZERO, packet, 1500));
    sim.poll(Time::MAX);
    for (packet, at) in sim.out {
        assert_eq!(
            at,
            Time::from_millis(13) + Time::from_nanos((packet + 1) * 1_200)
        );
    }
}

/// Both sides of the boundary: one segment is in service, and the queue takes exactly its limit.
#[test]
fn overflows_at_the_exact_byte() {
    for (queue, admitted) in [("15000B", 11), ("14999B", 10), ("10p", 11), ("9p", 10)] {
        let mut sim = Sim::new(&[("rate", "1mbit"), ("delay", "1ms"), ("queue", queue)]);
        (0..20).for_each(|packet| sim.offer(Time::ZERO, packet, 1500));
        let overflowed: Vec<_> = (admitted..20)
            .map(|packet| (packet, DropCause::Overflow))
            .collect();
        assert_eq!(sim.dropped, overflowed, "{queue}");
    }
}

/// The fate of the n-th segment does not depend on whether it arrives alone or in a super-packet.
#[test]
fn loses_the_same_segments_of_super_packets_and_single_packets() {
    for loss in ["3%", "gilbert:p=1%,r=30%", "at:5,17,100-110"] {
        let lost = |stride: u64| {
            let settings = [
                ("loss", loss),
                ("delay", "1ms"),
                ("jitter", "1ms"),
                ("corrupt", "1%"),
            ];
            let mut sim = Sim::scheduled(&settings, &[], 7);
            for n in 0..5_000_u64 {
                let index = (n % stride) as u16;
                let last = n % stride == stride - 1;
                let segment = Segment {
                    packet: n,
                    index,
                    last,
                    len: 1500,
                };
                sim.offer_segment(micros(n / stride), segment);
            }
            sim.dropped
                .iter()
                .map(|(packet, _)| *packet)
                .collect::<Vec<_>>()
        };
        assert!(!lost(1).is_empty());
        assert_eq!(lost(1), lost(45), "{loss}");
    }
}

#[test]
fn repeats_the_history_of_a_seed() {
    let history = |seed| {
        let settings = [
            ("loss", "1%"),
            ("duplicate", "1%"),
            ("delay", "5ms"),
            ("jitter", "1ms"),
        ];
        let mut sim = Sim::scheduled(&settings, &["1ms: loss 10%"], seed);
        (0..2_000).for_each(|packet| sim.offer(micros(packet), packet, 1500));
        sim.poll(Time::MAX);
        sim.out
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn reorders_segments_when_the_delay_falls_if_allowed() {
    let out = |allow_reordering| {
        let settings = [("delay", "80ms"), ("allow-reordering", allow_reordering)];
        let mut sim = Sim::scheduled(&settings, &["10ms: delay 20ms"], 1);
        (0..4).for_each(|n| sim.offer(Time::from_millis(n * 8), n, 1500));
        sim.poll(Time::MAX);
        sim.out
            .iter()
            .map(|(n, at)| (*n, at.as_nanos() / 1_000_000))
            .collect::<Vec<_>>()
    };
    assert_eq!(out("no"), [(0, 80), (1, 88), (2, 88), (3, 88)]);
    assert_eq!(out("yes"), [(2, 36), (3, 44), (0, 80), (1, 88)]);
}

#[test]
fn changes_the_rate_of_the_segment_in_service() {
    // 1,500 bytes at 1 Mbit/s take 12 ms. Half of them are sent when the rate becomes 10 times higher.
    let mut sim = Sim::scheduled(&[("rate", "1mbit")], &["6ms: rate 10mbit"], 1);
    sim.offer(Time::ZERO, 0, 1500);
    sim.offer(Time::ZERO, 1, 1500);
    sim.poll(Time::MAX);
    let micros: Vec<_> = sim
        .out
        .iter()
        .map(|(_, at)| at.as_nanos() / 1_000)
        .collect();
    assert_eq!(micros, [6_600, 7_800]);
}

#[test]
fn empties_the_queue_when_the_rate_becomes_unlimited() {
    let mut sim = Sim::scheduled(&[("rate", "1mbit")], &["6ms: rate unlimited"], 1);
    (0..5).for_each(|packet| sim.offer(Time::ZERO, packet, 1500));
    sim.poll(Time::MAX);
    assert!(sim.out.iter().all(|(_, at)| *at == Time::from_millis(6)));
    assert_eq!(sim.out.len(), 5);
}

#[test]
fn applies_a_change_from_its_nanosecond_on() {
    let lost = |at: u64| {
        let mut sim = Sim::scheduled(&[], &["1us: loss 100%"], 1);
        sim.offer(Time::from_nanos(at), 0, 1500);
        sim.dropped.len()
    };
    assert_eq!((lost(999), lost(1_000)), (0, 1));
}

#[test]
fn keeps_the_order_unless_jitter_may_reorder() {
    let out = |jitter| {
        let mut sim = Sim::new(&[("delay", "10ms"), ("jitter", jitter)]);
        (0..500).for_each(|packet| sim.offer(micros(packet * 10), packet, 1500));
        sim.packets_out()
    };
    assert!(out("2ms").is_sorted());
    assert!(!out("2ms,reorder").is_sorted());
}

#[test]
fn delivers_a_reordered_segment_after_later_ones() {
    let mut sim = Sim::new(&[("delay", "1ms"), ("reorder", "100%:5ms")]);
    sim.offer(Time::ZERO, 0, 1500);
    let no_reordering = Setting::parse("reorder", "0:0ms").unwrap();
    sim.line.set(micros(1), no_reordering, &mut |_| {});
    (1..4).for_each(|packet| sim.offer(Time::from_millis(packet), packet, 1500));
    assert_eq!(sim.packets_out(), [1, 2, 3, 0]);
}

#[test]
fn reports_a_duplicate_and_delivers_it_twice() {
    let mut sim = Sim::new(&[("duplicate", "100%"), ("delay", "1ms")]);
    sim.offer(Time::ZERO, 0, 1500);
    assert_eq!(sim.copies, 1);
    assert_eq!(sim.packets_out(), [0, 0]);
}

#[test]
fn delivers_corrupt_segments_with_a_mark() {
    let mut sim = Sim::new(&[("corrupt", "100%")]);
    sim.offer(Time::ZERO, 0, 1500);
    sim.poll(Time::ZERO);
    assert_eq!((sim.corrupt.as_slice(), sim.out.len()), ([0].as_slice(), 1));
}

#[test]
fn counts_overhead_for_sending_time_only() {
    let mut sim = Sim::new(&[("rate", "1gbit"), ("overhead", "38"), ("queue", "3000B")]);
    (0..4).for_each(|packet| sim.offer(Time::ZERO, packet, 1500));
    sim.poll(Time::MAX);
    let nanos: Vec<_> = sim.out.iter().map(|(_, at)| at.as_nanos()).collect();
    assert_eq!(nanos, [12_304, 24_608, 36_912]);
    assert_eq!(sim.dropped, [(3, DropCause::Overflow)]);
}
