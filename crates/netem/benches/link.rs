// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of segments that a line handles in a second on one core, under simulated time:
//! `cargo bench -p longhaul-netem`.
//!
//! A segment of 1,500 bytes arrives every 1.2 µs (10 Gbit/s); every fourth is a pure ACK. The line is polled after
//! every 64 segments, as for a super-packet. Each case runs five times without and five times with an
//! observer, in turn. The medians and the extremes are printed.

#![allow(missing_docs, reason = "a program")]

use longhaul_netem::{AckClass, Event, Line, LinkConfig, Schedule, Segment, Setting, ack::PureAck};
use longhaul_units::Time;
use std::{hint::black_box, time::Instant};

const SEGMENTS: u64 = 2_000_000;
const GAP: Time = Time::from_nanos(1_200);
const BURST: u64 = 64;
const RUNS: usize = 5;

type Case = (&'static str, &'static [(&'static str, &'static str)]);

const CASES: [Case; 4] = [
    ("delay", &[("delay", "13ms")]),
    ("delay, loss", &[("delay", "13ms"), ("loss", "0.1%")]),
    (
        "delay, rate, queue",
        &[("delay", "13ms"), ("rate", "10gbit"), ("queue", "1bdp")],
    ),
    (
        "everything",
        &[
            ("delay", "13ms"),
            ("jitter", "1ms,reorder"),
            ("rate", "9gbit"),
            ("queue", "1bdp"),
            ("aqm", "codel"),
            ("loss", "gilbert:p=0.1%,r=30%"),
            ("duplicate", "0.1%"),
            ("corrupt", "0.1%"),
            ("reorder", "0.1%:1ms"),
            ("ack-thin", "2"),
            ("ack-rate", "1000000"),
        ],
    ),
];

fn main() {
    for (name, settings) in CASES {
        let (unobserved, observed) = (0..RUNS)
            .map(|_| (run(line(settings)), run(line(settings).observed())))
            .unzip();
        println!(
            "{name:<20} {}  observed {}",
            summary(unobserved),
            summary(observed)
        );
    }
}

fn summary(mut rates: Vec<f64>) -> String {
    rates.sort_by(f64::total_cmp);
    let [low, median, high] = [0, RUNS / 2, RUNS - 1].map(|i| rates[i] / 1e6);
    format!("{median:6.1} M segments/s  ({low:.1} to {high:.1})")
}

/// Runs a line once. Returns the segments for each second of wall-clock time.
fn run(mut line: Line) -> f64 {
    let needs_ack_class = line.needs_ack_class();
    let (mut now, mut events) = (Time::ZERO, 0u64);
    let begin = Instant::now();
    for packet in 0..SEGMENTS {
        now += GAP;
        let ack_class = needs_ack_class.then(|| ack_class(packet));
        line.offer(now, segment(packet), ack_class, &mut |event| {
            events += count(event);
        });
        if packet.is_multiple_of(BURST) {
            line.poll(now, &mut |event| events += count(event));
        }
    }
    line.poll(now + Time::from_secs(10), &mut |event| {
        events += count(event);
    });
    let elapsed = begin.elapsed().as_secs_f64();
    assert!(events >= SEGMENTS, "every segment comes out or is dropped");
    SEGMENTS as f64 / elapsed
}

fn line(settings: &[(&str, &str)]) -> Line {
    let mut config = LinkConfig::default();
    for (key, value) in settings {
        config.apply(Setting::parse(key, value).expect("a setting"));
    }
    Line::new(config, Schedule::default(), 1, Time::ZERO)
}

fn segment(packet: u64) -> Segment {
    let len = if packet.is_multiple_of(4) { 52 } else { 1500 };
    Segment {
        packet,
        index: 0,
        last: true,
        len,
    }
}

/// The class of a packet of two flows: one sends data, the other only acknowledges.
fn ack_class(packet: u64) -> AckClass {
    match packet % 4 {
        0 => AckClass::Pure(PureAck {
            flow: 1,
            ack: (packet * 724) as u32,
            window: 500,
        }),
        _ => AckClass::Other { flow: 2 },
    }
}

fn count(event: Event) -> u64 {
    black_box(event);
    1
}
