// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK thinning and pacing keep what TCP needs, for any sequence of ACKs.

use longhaul_netem::ack::{Limits, Pacer, Pacing, PureAck, Thinned, Thinner};
use longhaul_units::Time;
use proptest::prelude::*;

/// One segment that reaches the rule.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Since the one before.
    gap: Time,
    flow: u64,
    /// Bytes newly covered; 0 makes a duplicate.
    covered: u32,
    window: u16,
    /// Whether it is a pure ACK or some other segment of the flow with the same number.
    pure: bool,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![Just(0), 0..100_000u64, 0..20_000_000u64];
    let covered = prop_oneof![3 => Just(2896u32), 1 => 0..200_000u32, 1 => Just(0)];
    let window = prop_oneof![8 => Just(500u16), 1 => Just(0), 1 => any::<u16>()];
    let one = (gap, 0..3u64, covered, window, prop::bool::weighted(0.9));
    let arrival = one.prop_map(|(gap, flow, covered, window, pure)| Arrival {
        gap: Time::from_nanos(gap),
        flow,
        covered,
        window,
        pure,
    });
    prop::collection::vec(arrival, 1..300)
}

/// A forwarded or arriving segment: when, its place in the sequence, what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    at: Time,
    token: u64,
    ack: PureAck,
    pure: bool,
}

/// The arrivals with absolute times and ACK numbers that wrap around.
fn timed(arrivals: &[Arrival]) -> Vec<Seen> {
    let mut now = Time::ZERO;
    let mut acks = [u32::MAX - 100_000; 3];
    let number = |(token, arrival): (usize, &Arrival)| {
        now += arrival.gap;
        let ack = &mut acks[arrival.flow as usize];
        *ack = ack.wrapping_add(arrival.covered);
        let (flow, ack, window) = (arrival.flow, *ack, arrival.window);
        let ack = PureAck { flow, ack, window };
        Seen {
            at: now,
            token: token as u64,
            ack,
            pure: arrival.pure,
        }
    };
    arrivals.iter().enumerate().map(number).collect()
}

const HOLD_MAX: Time = Time::from_millis(5);

/// Runs `sequence` through a thinner whose deadlines are kept to the nanosecond.
fn thin(sequence: &[Seen], shift: u32) -> Vec<Seen> {
    let mut thinner = Thinner::new(Limits::new(shift, HOLD_MAX, 1448));
    let mut out = Vec::new();
    let forward = |out: &mut Vec<Seen>, at, token: u64| {
        out.push(Seen {
            at,
            ..sequence[token as usize]
        });
    };
    for segment in sequence {
        release_until(&mut thinner, segment.at, |at, token| {
            forward(&mut out, at, token);
        });
        let before = match segment.pure {
            true => match thinner.offer(segment.at, &segment.ack, segment.token) {
                Thinned::Hold { .. } => continue,
                Thinned::PassBoth(held) => Some(held),
                Thinned::Pass { .. } => None,
            },
            false => thinner.flush(segment.at, segment.ack.flow),
        };
        before
            .into_iter()
            .for_each(|token| forward(&mut out, segment.at, token));
        forward(&mut out, segment.at, segment.token);
    }
    release_until(&mut thinner, Time::MAX, |at, token| {
        forward(&mut out, at, token);
    });
    out
}

fn release_until(thinner: &mut Thinner, until: Time, mut forward: impl FnMut(Time, u64)) {
    while let Some(at) = thinner.next_deadline().filter(|at| *at <= until) {
        let token = thinner
            .release(at)
            .expect("a deadline has something to give");
        forward(at, token);
    }
}

fn of_flow(segments: &[Seen], flow: u64) -> Vec<Seen> {
    segments
        .iter()
        .filter(|segment| segment.ack.flow == flow)
        .copied()
        .collect()
}

/// Whether the second says something beside progress: a duplicate or a change of window.
fn repeats(pair: &[Seen]) -> bool {
    !pair[1].ack.supersedes(&pair[0].ack)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each flow keeps its order, so that the cumulative number never goes back.
    #[test]
    fn thinning_keeps_order(arrivals in arrivals(), shift in 0..7u32) {
        let out = thin(&timed(&arrivals), shift);
        for flow in 0..3 {
            prop_assert!(of_flow(&out, flow).is_sorted_by(|a, b| a.token < b.token));
        }
    }

    /// Whatever an arrival said is said to the sender within the longest hold: by itself or by a
    /// later ACK that supersedes it. So the last ACK always gets out.
    #[test]
    fn thinning_says_everything_in_time(arrivals in arrivals(), shift in 0..7u32) {
        let sequence = timed(&arrivals);
        let out = thin(&sequence, shift);
        for segment in &sequence {
            let says_it = |sent: &&Seen| sent.token >= segment.token
                && sent.ack.flow == segment.ack.flow;
            let first = out.iter().find(says_it);
            prop_assert!(first.is_some_and(|sent| sent.at <= segment.at + HOLD_MAX));
        }
    }

    /// What is not forwarded was a pure ACK with progress, followed by one with more.
    #[test]
    fn thinning_never_eats_what_tcp_needs(arrivals in arrivals(), shift in 0..7u32) {
        let sequence = timed(&arrivals);
        let out = thin(&sequence, shift);
        for flow in 0..3 {
            for pair in of_flow(&sequence, flow).windows(2) {
                let eaten = !out.iter().any(|sent| sent.token == pair[0].token);
                prop_assert!(!eaten || (pair[0].pure && pair[1].ack.supersedes(&pair[0].ack)));
            }
            for pair in of_flow(&sequence, flow).windows(2).filter(|pair| repeats(pair)) {
                prop_assert!(out.iter().any(|sent| sent.token == pair[1].token));
            }
        }
    }

    /// The pacer gives back every token exactly once, in order within a flow, and its queue stays
    /// within its bound.
    #[test]
    fn pacing_loses_nothing(arrivals in arrivals(), buffer in 1..20usize) {
        let sequence = timed(&arrivals);
        let (out, replaced) = pace(&sequence, 100_000, buffer);
        prop_assert_eq!(out.len() + replaced.len(), sequence.len());
        for flow in 0..3 {
            let out = of_flow(&out, flow);
            prop_assert!(out.is_sorted_by(|a, b| a.token < b.token));
            let last = of_flow(&sequence, flow).last().map(|segment| segment.token);
            prop_assert_eq!(out.last().map(|sent| sent.token), last);
        }
        for token in replaced {
            let gone = sequence[token as usize];
            let later = |sent: &Seen| sent.token > token && sent.ack.supersedes(&gone.ack);
            prop_assert!(out.iter().any(|sent| sent.ack.flow == gone.ack.flow && later(sent)));
        }
        for flow in 0..3 {
            for pair in of_flow(&sequence, flow).windows(2).filter(|pair| repeats(pair)) {
                prop_assert!(out.iter().any(|sent| sent.token == pair[1].token));
            }
        }
    }
}

/// Runs `sequence` through a pacer: what is forwarded and when, and the tokens that were replaced.
fn pace(sequence: &[Seen], rate: u64, buffer: usize) -> (Vec<Seen>, Vec<u64>) {
    let mut pacer = Pacer::new(rate, buffer);
    let (mut out, mut replaced, mut queued) = (Vec::new(), Vec::new(), 0);
    let sent = |at, token: u64| Seen {
        at,
        ..sequence[token as usize]
    };
    for segment in sequence {
        while let Some(at) = pacer.next_deadline().filter(|at| *at <= segment.at) {
            out.push(sent(at, pacer.release(at).expect("a slot has an ACK")));
            queued -= 1;
        }
        if !segment.pure {
            let flushed = std::iter::from_fn(|| pacer.flush(segment.ack.flow));
            let before = out.len();
            out.extend(flushed.map(|token| sent(segment.at, token)));
            queued -= out.len() - before;
            out.push(*segment);
            continue;
        }
        match pacer.offer(segment.at, &segment.ack, segment.token) {
            Pacing::Send => out.push(*segment),
            Pacing::Queued => queued += 1,
            Pacing::Replaced(token) => replaced.push(token),
            Pacing::Expelled(token) => out.push(sent(segment.at, token)),
        }
        assert!(queued <= buffer);
    }
    while let Some(at) = pacer.next_deadline() {
        out.push(sent(at, pacer.release(at).expect("a slot has an ACK")));
    }
    (out, replaced)
}

/// `count` ACKs of one flow, each with progress, one every `gap`.
fn steady(count: u64, gap: Time) -> Vec<Seen> {
    let arrival = Arrival {
        gap,
        flow: 0,
        covered: 1448,
        window: 500,
        pure: true,
    };
    timed(&vec![arrival; count as usize])
}

#[test]
fn the_paced_rate_is_exact_over_a_second() {
    // 60,000 a second as in the ACK paper, and rates whose spacing is no whole nanosecond.
    for rate in [60_000, 7, 99_991] {
        let (out, replaced) = pace(&steady(3 * rate, Time::ZERO), rate, 3 * rate as usize);
        assert!(replaced.is_empty());
        for (k, sent) in out.iter().enumerate() {
            let exact = (k as u128 * 1_000_000_000).div_ceil(u128::from(rate));
            assert_eq!(sent.at, Time::from_nanos(exact as u64));
        }
    }
}

#[test]
fn an_overload_is_paced_at_the_rate_and_keeps_the_latest() {
    // 1 ACK/µs into 60,000 a second: what goes out is spaced, and the queue's newest is the last.
    let (out, replaced) = pace(&steady(100_000, Time::from_micros(1)), 60_000, 100);
    assert_eq!(out.len() + replaced.len(), 100_000);
    let first = out[0].at;
    let within = out
        .iter()
        .filter(|sent| sent.at < first + Time::from_millis(100))
        .count();
    assert_eq!(within, 6000);
    assert_eq!(out.last().map(|sent| sent.token), Some(99_999));
}

#[test]
fn thinning_reaches_its_ratio() {
    for shift in 0..=6 {
        let out = thin(&steady(64_000, Time::from_micros(1)), shift);
        let want = 64_000 >> shift;
        assert!(
            (want..=want + 2).contains(&out.len()),
            "{} at {shift}",
            out.len()
        );
    }
}
