// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the grammar of link settings: a parsed value reads back. A line with any accepted settings loses no segment
//! without an event.
//!
//! The input is `key value` on separate lines.

use longhaul_netem::{
    Event, Line, LinkConfig, Schedule, Segment, Setting, jitter::Jitter, loss::Loss,
    queue::discipline::QueueDiscipline,
};
use longhaul_units::Time;
use std::{fmt, str::FromStr};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut config = LinkConfig::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match Setting::parse(key, value) {
            Ok(setting) => {
                check_round_trip(&setting);
                config.apply(setting);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if config.check().is_ok() {
        check_accounting(config);
    }
}

fn check_round_trip(setting: &Setting) {
    match setting {
        Setting::Jitter(jitter) => check_same::<Jitter>(jitter),
        Setting::Aqm(rule) => check_same::<QueueDiscipline>(rule),
        Setting::Loss(loss) => check_same::<Loss>(loss),
        _ => {}
    }
}

fn check_same<T: FromStr + fmt::Display + fmt::Debug + PartialEq>(rule: &T) {
    let text = rule.to_string();
    assert_eq!(text.parse().ok().as_ref(), Some(rule), "{text}");
}

/// Checks that every segment and copy is delivered or dropped, that each segment has one verdict, and that the line
/// becomes idle.
fn check_accounting(config: LinkConfig) {
    const SEGMENTS: u64 = 40;
    let mut line = Line::new(config, Schedule::default(), 1, Time::ZERO).observed();
    let (mut expected, mut ended, mut verdicts) = (SEGMENTS, 0, 0);
    let mut emit = |event| match event {
        Event::Duplicate(_) => expected += 1,
        Event::Deliver(_) | Event::Drop { .. } => ended += 1,
        Event::Verdict(_) => verdicts += 1,
    };
    for packet in 0..SEGMENTS {
        let segment = Segment {
            packet,
            index: 0,
            last: true,
            len: 1500,
        };
        line.offer(Time::from_micros(packet), segment, None, &mut emit);
    }
    // Each segment leaves the transmitter and the wire once.
    for _ in 0..8 * SEGMENTS {
        if let Some(deadline) = line.next_deadline() {
            line.poll(deadline, &mut emit);
        }
    }
    assert_eq!((line.next_deadline(), ended), (None, expected));
    assert_eq!(verdicts, SEGMENTS);
}
