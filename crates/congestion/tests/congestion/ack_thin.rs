// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of ACK thinning in the kernel with that of `longhaul link`.

use longhaul_congestion::ack_thin::math::{Flow, Kind, Limits, PureAck, Verdict, classify};
use longhaul_netem::{
    AckClass,
    ack::{self, AckThinner, ThinningDecision},
};
use longhaul_units::Time;
use proptest::prelude::*;

/// A segment that a receiver sends.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Time since the previous segment.
    gap: Time,
    /// Bytes newly covered; 0 is a duplicate.
    covered: u32,
    window: u16,
    pure: bool,
}

fn segments() -> impl Strategy<Value = Vec<Sent>> {
    let gap = prop_oneof![Just(0), 0..100_000u64, 0..20_000_000u64];
    let covered = prop_oneof![6 => Just(2896u32), 1 => 0..40_000u32, 1 => Just(0)];
    let window = prop_oneof![8 => Just(500u16), 1 => Just(0), 1 => any::<u16>()];
    let one = (gap, covered, window, prop::bool::weighted(0.95));
    let sent = one.prop_map(|(gap, covered, window, pure)| Sent {
        gap: Time::from_nanos(gap),
        covered,
        window,
        pure,
    });
    prop::collection::vec(sent, 1..300)
}

const HOLD: Time = Time::from_millis(10);

/// Decision on one segment, or on a stored ACK that is due before it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Verdict(Verdict),
    /// Whether another segment superseded a stored ACK.
    Flushed(bool),
    ReleasedAt(Time),
}

/// Returns all decisions for `sent`, in order, by the given functions.
fn decide<S>(
    sent: &[Sent],
    state: &mut S,
    deadline: impl Fn(&mut S) -> Option<Time>,
    release: impl Fn(&mut S, Time) -> bool,
    segment: impl Fn(&mut S, Time, Sent, u32) -> Seen,
) -> Vec<Seen> {
    let (mut now, mut number) = (Time::from_millis(1), u32::MAX - 100_000);
    let mut seen = Vec::new();
    for one in sent {
        now += one.gap;
        while let Some(at) = deadline(state).filter(|at| *at < now) {
            assert!(release(state, at), "due at {at:?}");
            seen.push(Seen::ReleasedAt(at));
        }
        number = number.wrapping_add(one.covered);
        seen.push(segment(state, now, *one, number));
    }
    seen
}

fn kernel_decisions(sent: &[Sent], ratio: u32, covered_max: u32) -> Vec<Seen> {
    let limits = Limits {
        hold_ns: HOLD.as_nanos(),
        count_max: ratio,
        covered_max,
    };
    let segment = |flow: &mut Option<Flow>, now: Time, one: Sent, number: u32| {
        let ack = PureAck::new(number, one.window);
        match (flow.as_mut(), one.pure) {
            (None, false) => Seen::Flushed(false),
            (None, true) => {
                *flow = Some(Flow::begin(now, ack));
                Seen::Verdict(Verdict::Pass)
            }
            (Some(flow), true) => Seen::Verdict(flow.offer(now, ack, &limits)),
            (Some(flow), false) => Seen::Flushed(flow.flush(now)),
        }
    };
    decide(
        sent,
        &mut None,
        |flow: &mut Option<Flow>| flow.and_then(|flow| flow.deadline()),
        |flow, now| flow.as_mut().is_some_and(|flow| flow.release(now)),
        segment,
    )
}

fn link_decisions(sent: &[Sent], shift: u32, covered_max: u32) -> Vec<Seen> {
    let limits = ack::ThinningLimits {
        covered_max,
        ..ack::ThinningLimits::new(shift, HOLD, 1500)
    };
    let segment = |thinner: &mut AckThinner, now: Time, one: Sent, number: u32| {
        let ack = ack::PureAck {
            flow: 1,
            ack: number,
            window: one.window,
        };
        if one.pure {
            Seen::Verdict(match thinner.offer(now, &ack, 0) {
                ThinningDecision::Pass { .. } => Verdict::Pass,
                ThinningDecision::PassBoth(_) => Verdict::PassBoth,
                ThinningDecision::Hold { .. } => Verdict::Hold,
            })
        } else {
            Seen::Flushed(thinner.flush(now, 1).is_some())
        }
    };
    decide(
        sent,
        &mut AckThinner::new(limits),
        AckThinner::next_deadline,
        |thinner, now| thinner.release(now).is_some(),
        segment,
    )
}

proptest! {
    #[test]
    fn kernel_and_link_decide_alike(sent in segments(), shift in 0..6u32, full in 1..20u32) {
        let covered_max = (full << shift) * 1448;
        prop_assert_eq!(
            kernel_decisions(&sent, 1 << shift, covered_max),
            link_decisions(&sent, shift, covered_max)
        );
    }

    /// From the sender's view: the acknowledged bytes never lag by more than the limits allow.
    #[test]
    fn delays_stay_within_the_limits(sent in segments(), ratio in 1..64u32) {
        let covered_max = ratio * 1448;
        let seen = kernel_decisions(&sent, ratio, covered_max);
        let mut kept = 0;
        for one in &seen {
            match one {
                Seen::Verdict(Verdict::Hold) => kept += 1,
                _ => kept = 0,
            }
            prop_assert!(kept < ratio, "{kept} kept of {ratio}");
        }
    }
}

#[test]
fn ratio_counts_segments_with_delayed_acks() {
    let sent = [Sent {
        gap: Time::from_nanos(1000),
        covered: 2896,
        window: 500,
        pure: true,
    }; 800];
    let passed = |ratio: u32| {
        let seen = kernel_decisions(&sent, ratio, ratio * 1448);
        let passes = seen.iter().filter(|s| **s == Seen::Verdict(Verdict::Pass));
        passes.count()
    };
    // The first is always sent.
    assert_eq!([2, 4, 8, 32].map(passed), [800, 400, 200, 50]);
}

fn packet(version: u8, flags: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut ip = match version {
        4 => vec![0; 20],
        _ => vec![0; 40],
    };
    ip[0] = if version == 4 { 0x45 } else { 0x60 };
    ip[if version == 4 { 9 } else { 6 }] = 6;
    let mut tcp = vec![0; 20];
    let words = (20 + options.len() as u16) / 4;
    tcp[8..12].copy_from_slice(&77_u32.to_be_bytes());
    tcp[12..14].copy_from_slice(&(words << 12 | flags).to_be_bytes());
    tcp[14..16].copy_from_slice(&9_u16.to_be_bytes());
    [ip, tcp, options.to_vec(), payload.to_vec()].concat()
}

const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
const SACK: &[u8] = &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
const MULTIPATH: &[u8] = &[30, 8, 32, 1, 0, 0, 0, 2];

#[test]
fn classifies_only_bare_acks_as_pure() {
    let pure = Kind::Pure(PureAck::new(77, 9));
    for version in [4, 6] {
        assert_eq!(classify(&packet(version, 0x10, &[], &[])), pure);
        assert_eq!(classify(&packet(version, 0x10, TIMESTAMPS, &[])), pure);
        for (options, payload) in [
            (SACK, &b""[..]),
            (MULTIPATH, b""),
            (&[], b"x"),
            (TIMESTAMPS, b"x"),
            (&[], &[0; 12]),
            (TIMESTAMPS, &[0; 60_000]),
        ] {
            let packet = packet(version, 0x10, options, payload);
            assert_eq!(classify(&packet), Kind::Other, "{options:?}");
        }
        // FIN, SYN, RST, PSH, URG, ECE, CWR, AE (RFC 9293 §3.1, RFC 9768 §3.1).
        for flag in [0, 1, 2, 3, 5, 6, 7, 8].map(|bit| 1 << bit) {
            let packet = packet(version, 0x10 | flag, &[], &[]);
            assert_eq!(classify(&packet), Kind::Other, "flag {flag:#x}");
        }
    }
}

#[test]
fn passes_fragments_and_ip_options() {
    let mut fragment = packet(4, 0x10, &[], &[]);
    fragment[6] = 0x20;
    assert_eq!(classify(&fragment), Kind::Other);
    let mut long = packet(4, 0x10, &[], &[]);
    long[0] = 0x46;
    assert_eq!(classify(&long), Kind::Other);
    let mut udp = packet(6, 0x10, &[], &[]);
    udp[6] = 17;
    assert_eq!(classify(&udp), Kind::NotTcp);
}

proptest! {
    /// The classifications agree, whichever byte is changed.
    #[test]
    fn kernel_and_link_classify_alike(
        version in prop_oneof![Just(4), Just(6)],
        stamped: bool,
        at in 0..72usize,
        byte: u8,
    ) {
        let options = if stamped { TIMESTAMPS } else { &[] };
        let mut bytes = packet(version, 0x10, options, &[]);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Kind::Pure(ack) = classify(&bytes) {
            let Some(AckClass::Pure(by_link)) = AckClass::of(&bytes) else {
                return Err(TestCaseError::fail("a link would not"));
            };
            prop_assert_eq!((ack.ack, ack.window), (by_link.ack, by_link.window));
        }
    }
}
