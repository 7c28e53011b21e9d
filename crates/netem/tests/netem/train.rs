// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of [`TrainLine`] with [`Line`]: both lose the same segments for the same cause, and deliver
//! the others at the same nanosecond.

use longhaul_netem::{
    DropCause, Event, Line, LinkConfig, Schedule, Segment, Setting, Train, TrainLine, TrainVerdict,
    train::UnsupportedSetting,
};
use longhaul_units::Time;
use proptest::prelude::*;

/// The outcome of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SegmentOutcome {
    Out(Time),
    Lost(Cause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Loss,
    Overflow,
}

fn cause(drop: DropCause) -> Cause {
    match drop {
        DropCause::Loss => Cause::Loss,
        DropCause::Overflow => Cause::Overflow,
        other => panic!("{other:?} can't happen here"),
    }
}

fn config(settings: &[(&str, String)]) -> LinkConfig {
    let mut config = LinkConfig::default();
    for (key, value) in settings {
        config.apply(Setting::parse(key, value).unwrap());
    }
    config
}

/// Outcome of each segment on a [`TrainLine`] in the order of offers, and the backlog in bytes after each
/// train.
fn by_trains(config: LinkConfig, trains: &[(Time, Train)]) -> (Vec<SegmentOutcome>, Vec<u64>) {
    let mut line = TrainLine::new(config, 7).unwrap();
    let (mut outcomes, mut backlogs) = (Vec::new(), Vec::new());
    for (at, train) in trains {
        let before = outcomes.len();
        line.offer(*at, *train, |outcome| match outcome {
            TrainVerdict::Out(out) => {
                outcomes.extend((0..out.count).map(|index| SegmentOutcome::Out(out.at(index))));
            }
            TrainVerdict::Lost {
                count, cause: drop, ..
            } => {
                outcomes.extend((0..count).map(|_| SegmentOutcome::Lost(cause(drop))));
            }
        });
        assert_eq!(outcomes.len() - before, train.count as usize);
        backlogs.push(line.backlog_bytes(*at));
    }
    (outcomes, backlogs)
}

/// Outcome of each segment on a [`Line`] in the order of offers, and the backlog in bytes after each train.
fn by_segments(config: LinkConfig, trains: &[(Time, Train)]) -> (Vec<SegmentOutcome>, Vec<u64>) {
    let mut line = Line::new(config, Schedule::default(), 7, Time::ZERO);
    let total: usize = trains.iter().map(|(_, train)| train.count as usize).sum();
    let (mut outcomes, mut backlogs) = (vec![None; total], Vec::new());
    let mut record = |event| match event {
        Event::Deliver(out) => {
            outcomes[out.segment.packet as usize] = Some(SegmentOutcome::Out(out.at));
        }
        Event::Drop {
            segment,
            cause: drop,
        } => {
            outcomes[segment.packet as usize] = Some(SegmentOutcome::Lost(cause(drop)));
        }
        Event::Duplicate(_) | Event::Verdict(_) => panic!("nothing is duplicated or observed"),
    };
    let mut packet = 0;
    for (at, train) in trains {
        for _ in 0..train.count {
            let segment = Segment {
                packet,
                index: 0,
                last: true,
                len: train.len,
            };
            packet += 1;
            line.offer(*at, segment, None, &mut record);
        }
        backlogs.push(line.backlog_bytes());
    }
    line.poll(Time::from_secs(1_000_000), &mut record);
    (outcomes.into_iter().flatten().collect(), backlogs)
}

fn trains() -> impl Strategy<Value = Vec<(Time, Train)>> {
    let train = (
        0u64..400_000,
        1u32..=60,
        prop_oneof![Just(1500u32), 60u32..9000],
    );
    prop::collection::vec(train, 1..120).prop_map(|list| {
        let mut now = Time::ZERO;
        let next = |(gap, count, len)| {
            now += Time::from_nanos(gap);
            (now, Train { count, len })
        };
        list.into_iter().map(next).collect()
    })
}

fn settings() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let rate = prop_oneof![
        (1_000_000u64..100_000_000_000).prop_map(Some),
        Just(Some(1_000_000_000)),
        Just(None)
    ];
    let queue = prop_oneof![
        (1u32..200).prop_map(|n| format!("{n}p")),
        (100u32..300_000).prop_map(|n| format!("{n}B")),
    ];
    let loss = prop_oneof![
        Just("none".to_owned()),
        Just("3%".to_owned()),
        Just("gilbert:p=2%,r=20%,good=1%,bad=70%".to_owned()),
        Just("at:3,7-12,99,400-460".to_owned()),
    ];
    (rate, queue, loss, 0u32..50).prop_map(|(rate, queue, loss, overhead)| {
        let mut settings = vec![
            ("delay", "5ms".to_owned()),
            ("loss", loss),
            ("overhead", overhead.to_string()),
        ];
        if let Some(bits) = rate {
            settings.extend([("rate", format!("{bits}bit")), ("queue", queue)]);
        }
        settings
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn decides_on_trains_as_on_single_segments(settings in settings(), trains in trains()) {
        let outcomes = by_trains(config(&settings), &trains);
        prop_assert_eq!(outcomes, by_segments(config(&settings), &trains));
    }
}

#[test]
fn counts_segments_out_at_their_times() {
    let mut line = TrainLine::new(config(&[("rate", "7gbit".to_owned())]), 1).unwrap();
    let train = Train {
        count: 45,
        len: 1500,
    };
    line.offer(Time::from_micros(3), train, |outcome| {
        let TrainVerdict::Out(out) = outcome else {
            panic!()
        };
        for index in 0..out.count {
            let at = out.at(index);
            assert_eq!(out.segments_out_by(at), index + 1);
            assert_eq!(out.segments_out_by(at.since(Time::from_nanos(1))), index);
        }
    });
}

#[test]
fn names_the_unsupported_setting() {
    for (key, value, word) in [
        ("jitter", "1ms", "jitter"),
        ("duplicate", "1%", "duplication"),
        ("ack-thin", "2", "thinning"),
        ("aqm", "codel", "AQM"),
    ] {
        let error: UnsupportedSetting =
            TrainLine::new(config(&[(key, value.to_owned())]), 1).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}
