// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of an observed line, which reports each segment's arrival, the queue at that time, and the verdict.

use longhaul_netem::ack::PureAck;
use longhaul_netem::{
    AckClass, DropCause, Event, Line, LinkConfig, Schedule, Segment, SegmentVerdict, Setting,
};
use longhaul_units::Time;
use proptest::prelude::*;

/// An observed line with a log of its events, in order.
struct Sim {
    line: Line,
    events: Vec<Event>,
}

impl Sim {
    fn new(settings: &[(&str, &str)]) -> Self {
        let mut config = LinkConfig::default();
        for (key, value) in settings {
            config.apply(Setting::parse(key, value).unwrap());
        }
        config.check().unwrap();
        Self {
            line: Line::new(config, Schedule::default(), 1, Time::ZERO).observed(),
            events: Vec::new(),
        }
    }

    fn offer(&mut self, at: Time, packet: u64) {
        self.offer_with_class(at, packet, None);
    }

    fn offer_with_class(&mut self, at: Time, packet: u64, ack_class: Option<AckClass>) {
        let events = &mut self.events;
        let mut emit = |event| events.push(event);
        self.line.offer(at, segment(packet), ack_class, &mut emit);
    }

    fn poll(&mut self, now: Time) {
        let events = &mut self.events;
        self.line.poll(now, &mut |event| events.push(event));
    }

    /// Verdicts in the order of reports: packet, arrival in µs, queue in bytes, cause of the loss.
    fn verdicts(&self) -> Vec<(u64, u64, u64, Option<DropCause>)> {
        let to_tuple = |verdict: &SegmentVerdict| {
            let micros = verdict.at.as_nanos() / 1_000;
            let packet = verdict.segment.packet;
            (packet, micros, verdict.queue_bytes, verdict.lost)
        };
        self.verdict_events().map(to_tuple).collect()
    }

    fn verdict_events(&self) -> impl Iterator<Item = &SegmentVerdict> {
        self.events.iter().filter_map(|event| match event {
            Event::Verdict(verdict) => Some(verdict),
            _ => None,
        })
    }

    fn count(&self, matches: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| matches(event)).count()
    }
}

fn segment(packet: u64) -> Segment {
    Segment {
        packet,
        index: 0,
        last: true,
        len: 1500,
    }
}

fn pure(ack: u32) -> Option<AckClass> {
    let (flow, window) = (1, 500);
    Some(AckClass::Pure(PureAck { flow, ack, window }))
}

const fn micros(n: u64) -> Time {
    Time::from_micros(n)
}

/// 1,500 bytes take 1,200 µs.
const RATE: (&str, &str) = ("rate", "10mbit");

#[test]
fn reports_the_queue_at_arrival() {
    let mut sim = Sim::new(&[RATE, ("delay", "1ms"), ("queue", "100p")]);
    (0..3).for_each(|packet| sim.offer(micros(5), packet));
    sim.offer(micros(5 + 1_199), 3);
    sim.offer(micros(5 + 1_200), 4);
    let queues: Vec<_> = sim.verdicts().iter().map(|verdict| verdict.2).collect();
    assert_eq!(queues, [0, 0, 1_500, 3_000, 3_000]);
    assert!(sim.verdicts().iter().all(|verdict| verdict.3.is_none()));
}

#[test]
fn reports_an_empty_queue_at_an_unlimited_rate() {
    let mut sim = Sim::new(&[("delay", "1ms")]);
    (0..2).for_each(|packet| sim.offer(micros(7), packet));
    assert_eq!(sim.verdicts(), [(0, 7, 0, None), (1, 7, 0, None)]);
}

#[test]
fn reports_the_cause_before_the_drop() {
    let mut sim = Sim::new(&[RATE, ("queue", "1500B"), ("loss", "at:2"), ("delay", "1ms")]);
    (0..4).for_each(|packet| sim.offer(micros(9), packet));
    let causes = [None, Some(DropCause::Loss), None, Some(DropCause::Overflow)];
    let reported: Vec<_> = sim.verdicts().iter().map(|verdict| verdict.3).collect();
    assert_eq!(reported, causes);
    assert_eq!(sim.verdicts()[3].2, 1_500, "the queue was at its limit");
    for pair in sim.events.windows(2) {
        if let [Event::Verdict(verdict), Event::Drop { segment, cause }] = pair {
            assert_eq!((verdict.segment, verdict.lost), (*segment, Some(*cause)));
        }
    }
    assert_eq!(sim.count(|event| matches!(event, Event::Drop { .. })), 2);
}

#[test]
fn reports_codel_verdicts_at_the_head_of_the_queue() {
    let aqm = ("aqm", "codel:target=1ms,interval=10ms");
    let mut sim = Sim::new(&[RATE, aqm, ("queue", "1000p"), ("delay", "1ms")]);
    (0..100).for_each(|packet| sim.offer(micros(3), packet));
    assert_eq!(sim.verdicts(), [(0, 3, 0, None)], "the others still wait");
    sim.poll(Time::from_secs(1));
    let dropped = sim.count(|event| matches!(event, Event::Drop { .. }));
    assert!(dropped > 0);
    let verdicts = sim.verdicts();
    let numbers: Vec<_> = verdicts.iter().map(|verdict| verdict.0).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let by_aqm = Some(DropCause::Aqm);
    assert_eq!(verdicts.iter().filter(|j| j.3 == by_aqm).count(), dropped);
    assert!(
        verdicts.iter().all(|verdict| verdict.1 == 3),
        "times of arrival"
    );
    assert_eq!(verdicts[99].2, 98 * 1_500, "queue at arrival");
}

#[test]
fn reports_arrival_times_of_thinned_and_held_acks() {
    let mut sim = Sim::new(&[("ack-thin", "1"), ("max-ack-delay", "5ms")]);
    sim.offer_with_class(micros(10), 0, pure(1_000));
    sim.offer_with_class(micros(20), 1, pure(2_000));
    sim.offer_with_class(micros(30), 2, pure(3_000));
    sim.offer_with_class(micros(40), 3, pure(4_000));
    assert_eq!(
        sim.verdicts(),
        [
            (0, 10, 0, None),
            (1, 20, 0, Some(DropCause::AckFiltering)),
            (2, 30, 0, None)
        ],
        "the last is held"
    );
    sim.poll(Time::from_millis(100));
    assert_eq!(sim.verdicts()[3], (3, 40, 0, None));
}

#[test]
fn reports_arrival_times_of_paced_acks() {
    let mut sim = Sim::new(&[("ack-rate", "1000"), ("delay", "1ms")]);
    sim.offer_with_class(micros(10), 0, pure(1_000));
    sim.offer_with_class(micros(20), 1, pure(2_000));
    sim.poll(Time::from_millis(100));
    assert_eq!(sim.verdicts(), [(0, 10, 0, None), (1, 20, 0, None)]);
    let out: Vec<_> = sim.events.iter().filter_map(out_at).collect();
    assert_eq!(out[0], micros(1_010));
    assert!(out[1] >= micros(2_010), "one slot later");
}

fn out_at(event: &Event) -> Option<Time> {
    match event {
        Event::Deliver(out) => Some(out.at),
        _ => None,
    }
}

#[test]
fn reports_a_duplicated_segment_once() {
    let mut sim = Sim::new(&[("duplicate", "100%")]);
    sim.offer(micros(1), 0);
    sim.poll(micros(1));
    assert_eq!(sim.verdicts(), [(0, 1, 0, None)]);
    assert_eq!(sim.events.iter().filter_map(out_at).count(), 2);
}

#[test]
fn reports_each_segment_once_across_a_change_to_codel() {
    let mut sim = Sim::new(&[RATE, ("queue", "1000p"), ("delay", "1ms")]);
    (0..50).for_each(|packet| sim.offer(micros(3), packet));
    let aqm = Setting::parse("aqm", "codel:target=1ms,interval=10ms").unwrap();
    sim.line.set(micros(4), aqm, &mut |_| {});
    (50..100).for_each(|packet| sim.offer(micros(5), packet));
    sim.poll(Time::from_secs(1));
    let numbers: Vec<_> = sim.verdicts().iter().map(|verdict| verdict.0).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

fn settings() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let aqm = prop_oneof![
        Just("tail"),
        Just("codel:target=1ms,interval=10ms"),
        Just("red:min=10KB")
    ];
    let rate = prop_oneof![Just("10mbit"), Just("1gbit")];
    let thin = prop_oneof![Just("0"), Just("2")];
    (aqm, rate, thin).prop_map(|(aqm, rate, thin)| {
        vec![
            ("aqm", aqm),
            ("rate", rate),
            ("ack-thin", thin),
            ("queue", "40p"),
            ("delay", "2ms"),
            ("loss", "5%"),
            ("jitter", "uniform:1ms,reorder"),
        ]
    })
}

proptest! {
    /// Any settings: each segment has one verdict, and there are as many losses as drops.
    #[test]
    fn reports_each_segment_once(
        settings in settings(),
        gaps in prop::collection::vec((0..3_000u64, any::<bool>()), 1..200),
    ) {
        let mut sim = Sim::new(&settings);
        let mut now = Time::ZERO;
        for (packet, (gap, acks)) in gaps.iter().enumerate() {
            now += micros(*gap);
            let ack_class = if *acks { pure(packet as u32 * 1_448) } else { None };
            sim.offer_with_class(now, packet as u64, ack_class);
            sim.poll(now);
        }
        sim.poll(Time::from_secs(100));
        let mut verdicts = sim.verdicts();
        let lost = verdicts.iter().filter(|verdict| verdict.3.is_some()).count();
        prop_assert_eq!(lost, sim.count(|event| matches!(event, Event::Drop { .. })));
        verdicts.sort_unstable_by_key(|verdict| verdict.0);
        let numbers: Vec<_> = verdicts.iter().map(|verdict| verdict.0).collect();
        prop_assert_eq!(numbers, (0..gaps.len() as u64).collect::<Vec<_>>());
    }
}
