// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocation in steady state: a line allocates nothing for a packet (invariant 1 of ARCHITECTURE.md).

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use longhaul_netem::{Event, Line, LinkConfig, Schedule, Segment, Setting};
use longhaul_units::Time;

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

/// Offers `count` segments from number `first` on, one a microsecond. Returns how many come out.
fn drive(line: &mut Line, first: u64, count: u64) -> u64 {
    let mut out = 0;
    let mut emit = |event| out += u64::from(matches!(event, Event::Deliver(_)));
    for packet in first..first + count {
        let now = Time::from_micros(packet);
        let segment = Segment {
            packet,
            index: 0,
            last: true,
            len: 1500,
        };
        line.offer(now, segment, None, &mut emit);
        line.poll(now, &mut emit);
    }
    out
}

#[test]
fn allocates_nothing_in_steady_state() {
    let mut config = LinkConfig::default();
    for (key, value) in [
        ("rate", "10gbit"),
        ("delay", "2ms"),
        ("queue", "100p"),
        ("loss", "gilbert:p=1%,r=30%"),
        ("jitter", "uniform:100us,reorder"),
        ("duplicate", "1%"),
        ("corrupt", "1%"),
        ("reorder", "1%:1ms"),
        ("aqm", "codel"),
    ] {
        config.apply(Setting::parse(key, value).unwrap());
    }
    let mut line = Line::new(config, Schedule::default(), 1, Time::ZERO);
    // A quarter of a second fills every queue to its usual depth.
    drive(&mut line, 0, 250_000);
    let out = assert_no_alloc(|| drive(&mut line, 250_000, 20_000));
    assert!(out > 15_000, "{out} of 20,000 came out");
}
