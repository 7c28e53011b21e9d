// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of ACK thinning and pacing: for any sequence of ACKs, TCP gets all the information that it needs.

use longhaul_netem::ack::{
    AckThinner, Pacer, PacingDecision, PureAck, ThinningDecision, ThinningLimits,
};
use longhaul_units::Time;
use proptest::prelude::*;

/// A segment that arrives at the ACK rule.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Time since the arrival before.
    gap: Time,
    flow: u64,
    /// Bytes newly acknowledged; 0 makes a duplicate.
    covered: u32,
    window: u16,
    /// Whether the segment is a pure ACK, or another segment of the flow with the same number.
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

/// A segment that arrives or is forwarded: the time, its position in the sequence, and its ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimedSegment {
    at: Time,
    token: u64,
    ack: PureAck,
    pure: bool,
}

/// The arrivals with absolute times, and with ACK numbers that wrap around.
fn timed_segments(arrivals: &[Arrival]) -> Vec<TimedSegment> {
    let mut now = Time::ZERO;
    let mut acks = [u32::MAX - 100_000; 3];
    let with_time = |(token, arrival): (usize, &Arrival)| {
        now += arrival.gap;
        let ack = &mut acks[arrival.flow as usize];
        *ack = ack.wrapping_add(arrival.covered);
        let (flow, ack, window) = (arrival.flow, *ack, arrival.window);
        let ack = PureAck { flow, ack, window };
        TimedSegment {
            at: now,
            token: token as u64,
            ack,
            pure: arrival.pure,
        }
    };
    arrivals.iter().enumerate().map(with_time).collect()
}

const HOLD_MAX: Time = Time::from_millis(5);

/// Runs `sequence` through a thinner whose ACKs are released at their deadlines to the nanosecond. Returns
/// the forwarded segments.
fn run_thinner(sequence: &[TimedSegment], shift: u32) -> Vec<TimedSegment> {
    let mut thinner = AckThinner::new(ThinningLimits::new(shift, HOLD_MAX, 1448));
    let mut out = Vec::new();
    let forward = |out: &mut Vec<TimedSegment>, at, token: u64| {
        out.push(TimedSegment {
            at,
            ..sequence[token as usize]
        });
    };
    for segment in sequence {
        release_until(&mut thinner, segment.at, |at, token| {
            forward(&mut out, at, token);
        });
        let before = if segment.pure {
            match thinner.offer(segment.at, &segment.ack, segment.token) {
                ThinningDecision::Hold { .. } => continue,
                ThinningDecision::PassBoth(held) => Some(held),
                ThinningDecision::Pass { .. } => None,
            }
        } else {
            thinner.flush(segment.at, segment.ack.flow)
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

fn release_until(thinner: &mut AckThinner, until: Time, mut forward: impl FnMut(Time, u64)) {
    while let Some(at) = thinner.next_deadline().filter(|at| *at <= until) {
        let token = thinner.release(at).expect("a deadline has a held ACK");
        forward(at, token);
    }
}

fn segments_of(segments: &[TimedSegment], flow: u64) -> Vec<TimedSegment> {
    segments
        .iter()
        .filter(|segment| segment.ack.flow == flow)
        .copied()
        .collect()
}

/// Whether the second ACK does not supersede the first: a duplicate or a change of window.
fn must_forward_second(pair: &[TimedSegment]) -> bool {
    !pair[1].ack.supersedes(&pair[0].ack)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Thinning keeps the order of each flow, so that the cumulative number never falls.
    #[test]
    fn thinner_keeps_the_order_of_flows(arrivals in arrivals(), shift in 0..7u32) {
        let out = run_thinner(&timed_segments(&arrivals), shift);
        for flow in 0..3 {
            prop_assert!(segments_of(&out, flow).is_sorted_by(|a, b| a.token < b.token));
        }
    }

    /// Each arrival, or a later segment of its flow, is forwarded within the longest hold. So the last
    /// ACK is always forwarded.
    #[test]
    fn thinner_forwards_within_the_longest_hold(arrivals in arrivals(), shift in 0..7u32) {
        let sequence = timed_segments(&arrivals);
        let out = run_thinner(&sequence, shift);
        for segment in &sequence {
            let carries_it = |sent: &&TimedSegment| sent.token >= segment.token
                && sent.ack.flow == segment.ack.flow;
            let first = out.iter().find(carries_it);
            prop_assert!(first.is_some_and(|sent| sent.at <= segment.at + HOLD_MAX));
        }
    }

    /// Thinning discards only pure ACKs that the next ACK of the flow supersedes.
    #[test]
    fn thinner_discards_only_superseded_acks(arrivals in arrivals(), shift in 0..7u32) {
        let sequence = timed_segments(&arrivals);
        let out = run_thinner(&sequence, shift);
        for flow in 0..3 {
            for pair in segments_of(&sequence, flow).windows(2) {
                let discarded = !out.iter().any(|sent| sent.token == pair[0].token);
                prop_assert!(!discarded || (pair[0].pure && pair[1].ack.supersedes(&pair[0].ack)));
            }
            for pair in segments_of(&sequence, flow).windows(2).filter(|pair| must_forward_second(pair)) {
                prop_assert!(out.iter().any(|sent| sent.token == pair[1].token));
            }
        }
    }

    /// Pacing returns every token exactly once, in order within each flow. Its queue stays within its
    /// bound.
    #[test]
    fn pacer_returns_every_token_once(arrivals in arrivals(), buffer in 1..20usize) {
        let sequence = timed_segments(&arrivals);
        let (out, replaced) = run_pacer(&sequence, 100_000, buffer);
        prop_assert_eq!(out.len() + replaced.len(), sequence.len());
        for flow in 0..3 {
            let out = segments_of(&out, flow);
            prop_assert!(out.is_sorted_by(|a, b| a.token < b.token));
            let last = segments_of(&sequence, flow).last().map(|segment| segment.token);
            prop_assert_eq!(out.last().map(|sent| sent.token), last);
        }
        for token in replaced {
            let discarded = sequence[token as usize];
            let later = |sent: &TimedSegment| sent.token > token && sent.ack.supersedes(&discarded.ack);
            prop_assert!(out.iter().any(|sent| sent.ack.flow == discarded.ack.flow && later(sent)));
        }
        for flow in 0..3 {
            for pair in segments_of(&sequence, flow).windows(2).filter(|pair| must_forward_second(pair)) {
                prop_assert!(out.iter().any(|sent| sent.token == pair[1].token));
            }
        }
    }
}

/// Runs `sequence` through a pacer. Returns the forwarded segments and the tokens of those replaced.
fn run_pacer(sequence: &[TimedSegment], rate: u64, buffer: usize) -> (Vec<TimedSegment>, Vec<u64>) {
    let mut pacer = Pacer::new(rate, buffer);
    let (mut out, mut replaced, mut queued) = (Vec::new(), Vec::new(), 0);
    let sent = |at, token: u64| TimedSegment {
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
            PacingDecision::Send => out.push(*segment),
            PacingDecision::Queued => queued += 1,
            PacingDecision::Replaced(token) => replaced.push(token),
            PacingDecision::Evicted(token) => out.push(sent(segment.at, token)),
        }
        assert!(queued <= buffer);
    }
    while let Some(at) = pacer.next_deadline() {
        out.push(sent(at, pacer.release(at).expect("a slot has an ACK")));
    }
    (out, replaced)
}

/// A sequence of `count` ACKs of one flow, one every `gap`, each of which acknowledges new data.
fn steady_acks(count: u64, gap: Time) -> Vec<TimedSegment> {
    let arrival = Arrival {
        gap,
        flow: 0,
        covered: 1448,
        window: 500,
        pure: true,
    };
    timed_segments(&vec![arrival; count as usize])
}

#[test]
fn pacer_holds_the_exact_rate() {
    // 60,000 a second as in the ACK paper, and rates whose interval is not a whole nanosecond.
    for rate in [60_000, 7, 99_991] {
        let (out, replaced) =
            run_pacer(&steady_acks(3 * rate, Time::ZERO), rate, 3 * rate as usize);
        assert!(replaced.is_empty());
        for (k, sent) in out.iter().enumerate() {
            let exact = (k as u128 * 1_000_000_000).div_ceil(u128::from(rate));
            assert_eq!(sent.at, Time::from_nanos(exact as u64));
        }
    }
}

#[test]
fn pacer_forwards_the_latest_ack_after_an_overload() {
    // 1,000,000 ACKs a second arrive, and 60,000 a second leave. The last to leave is the last to arrive.
    let (out, replaced) = run_pacer(&steady_acks(100_000, Time::from_micros(1)), 60_000, 100);
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
fn thinner_reaches_its_ratio() {
    for shift in 0..=6 {
        let out = run_thinner(&steady_acks(64_000, Time::from_micros(1)), shift);
        let want = 64_000 >> shift;
        assert!(
            (want..=want + 2).contains(&out.len()),
            "{} at {shift}",
            out.len()
        );
    }
}
