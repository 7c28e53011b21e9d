// SPDX-License-Identifier: MIT OR Apache-2.0
//! CoDel and RED against what their sources promise, under simulated time.

use longhaul_netem::{
    queue::discipline::{Discipline, QueueRule, Verdict},
    random::stream,
};
use longhaul_stats::fit;
use longhaul_units::{BitRate, Time};

fn rule(text: &str) -> QueueRule {
    let discipline: Discipline = text.parse().unwrap();
    let rate = BitRate::from_bits(1_000_000_000);
    QueueRule::new(&discipline, 1500, rate, stream(1, "queue"))
}

/// Drop times in µs of a queue that always holds a delay of 20 ms and never runs short, served one
/// segment every 12 µs.
fn drops_of_a_standing_queue(rule: &mut QueueRule, span: Time) -> Vec<f64> {
    let mut drops = Vec::new();
    let mut now = Time::ZERO;
    while now < span {
        while rule.keep(now, Time::from_millis(20), 2_500_000) == Verdict::Drop {
            drops.push(now.as_nanos() as f64 / 1e3);
        }
        now += Time::from_micros(12);
    }
    drops
}

#[test]
fn codel_follows_the_control_law() {
    let drops = drops_of_a_standing_queue(&mut rule("codel"), Time::from_secs(2));
    // The first comes when the delay has stood for one interval, at the next served segment.
    assert!((drops[0] - 100_000.0).abs() <= 12.0, "{}", drops[0]);
    // Then drop n + 1 comes interval/√n after drop n, each within one service time of the law.
    let mut due = drops[0];
    for (n, drop) in drops.iter().enumerate().skip(1) {
        due += 100_000.0 / (n as f64).sqrt();
        assert!(
            (0.0..=12.001).contains(&(drop - due)),
            "drop {n} at {drop}, due {due}"
        );
    }
    // Σ 1/√n ≈ 2√n − 1.46: 19 intervals hold about (20.46/2)² = 105 drops.
    assert!((100..=110).contains(&drops.len()), "{} drops", drops.len());
}

#[test]
fn codel_leaves_a_queue_below_its_target_alone() {
    let mut rule = rule("codel:target=21ms");
    assert!(drops_of_a_standing_queue(&mut rule, Time::from_secs(2)).is_empty());
}

#[test]
fn codel_scales_with_its_interval() {
    let mut rule = rule("codel:interval=350ms");
    let drops = drops_of_a_standing_queue(&mut rule, Time::from_secs(1));
    assert!((drops[0] - 350_000.0).abs() <= 12.0, "{}", drops[0]);
    assert!((drops[1] - 700_000.0).abs() <= 24.0, "{}", drops[1]);
}

/// Arrivals that a RED queue with a constant backlog refuses, of `arrivals`.
fn refused(backlog: u64, arrivals: u64) -> u64 {
    let mut rule = rule("red:min=100KB,max=300KB,p=10%,weight=100%");
    let refusals = (0..arrivals).filter(|_| !rule.admit(Time::ZERO, backlog, None));
    refusals.count() as u64
}

#[test]
fn red_drops_nothing_below_min_and_everything_at_twice_max() {
    assert_eq!(refused(99_999, 10_000), 0);
    assert_eq!(refused(600_000, 10_000), 10_000);
}

/// With p_a = p/(1 − k·p) after k spared arrivals, the gap between drops is uniform on 1 … 1/p:
/// the mean rate is 2/(1/p + 1), not p (Floyd and Jacobson, §VII, method 2).
#[test]
fn red_spaces_drops_evenly_between_min_and_max() {
    for (backlog, p) in [(150_000, 0.025), (200_000, 0.05), (300_000, 0.1)] {
        let rate = 2.0 * p / (1.0 + p);
        // The gaps vary less than geometric ones, so the binomial limits are generous.
        let drops = refused(backlog, 400_000);
        let p = fit::binomial(drops, 400_000, rate);
        assert!(p > 1e-3, "{drops} at {backlog}: p = {p}");
    }
}

#[test]
fn red_never_spares_more_than_one_over_p_arrivals() {
    let mut rule = rule("red:min=100KB,max=300KB,p=10%,weight=100%");
    let admitted: Vec<bool> = (0..100_000)
        .map(|_| rule.admit(Time::ZERO, 200_000, None))
        .collect();
    let longest = admitted
        .chunk_by(|a, b| a == b)
        .filter(|run| run[0])
        .map(<[bool]>::len)
        .max();
    assert_eq!(longest, Some(19));
}

#[test]
fn red_defaults_ride_out_a_burst_that_the_mean_does_not_see() {
    let mut rule = rule("red:min=100KB");
    assert!((0..50).all(|n| rule.admit(Time::ZERO, n * 1500, None)));
}

#[test]
fn tail_never_drops_by_itself() {
    let mut rule = rule("tail");
    assert!(rule.admit(Time::ZERO, u64::MAX, None));
    assert_eq!(rule.keep(Time::MAX, Time::MAX, u64::MAX), Verdict::Keep);
}
