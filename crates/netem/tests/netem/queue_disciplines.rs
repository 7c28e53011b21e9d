// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of CoDel and RED against their sources, under simulated time.

use longhaul_netem::{
    queue::discipline::{Aqm, AqmVerdict, QueueDiscipline},
    random::stream,
};
use longhaul_stats::fit;
use longhaul_units::{BitRate, Time};

fn aqm(text: &str) -> Aqm {
    let discipline: QueueDiscipline = text.parse().unwrap();
    let rate = BitRate::from_bits(1_000_000_000);
    Aqm::new(&discipline, 1500, rate, stream(1, "queue"))
}

/// Drop times in µs of a queue with a constant delay of 20 ms, which sends a segment every 12 µs and is never
/// short.
fn drops_of_a_standing_queue(aqm: &mut Aqm, span: Time) -> Vec<f64> {
    let mut drops = Vec::new();
    let mut now = Time::ZERO;
    while now < span {
        while aqm.decide(now, Time::from_millis(20), 2_500_000) == AqmVerdict::Drop {
            drops.push(now.as_nanos() as f64 / 1e3);
        }
        now += Time::from_micros(12);
    }
    drops
}

#[test]
fn codel_drops_by_the_control_law() {
    let drops = drops_of_a_standing_queue(&mut aqm("codel"), Time::from_secs(2));
    // The first drop is at the first segment after one interval above the target.
    assert!((drops[0] - 100_000.0).abs() <= 12.0, "{}", drops[0]);
    // Drop n + 1 is interval/√n after drop n, and within one service time of the control law.
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
fn codel_drops_nothing_below_its_target() {
    let mut aqm = aqm("codel:target=21ms");
    assert!(drops_of_a_standing_queue(&mut aqm, Time::from_secs(2)).is_empty());
}

#[test]
fn codel_spaces_drops_by_its_interval() {
    let mut aqm = aqm("codel:interval=350ms");
    let drops = drops_of_a_standing_queue(&mut aqm, Time::from_secs(1));
    assert!((drops[0] - 350_000.0).abs() <= 12.0, "{}", drops[0]);
    assert!((drops[1] - 700_000.0).abs() <= 24.0, "{}", drops[1]);
}

/// Number of drops of `arrivals` at a RED queue with a constant backlog.
fn red_drops(backlog: u64, arrivals: u64) -> u64 {
    let mut aqm = aqm("red:min=100KB,max=300KB,p=10%,weight=100%");
    let drops = (0..arrivals).filter(|_| !aqm.admit(Time::ZERO, backlog, None));
    drops.count() as u64
}

#[test]
fn red_drops_nothing_below_min_and_everything_at_twice_max() {
    assert_eq!(red_drops(99_999, 10_000), 0);
    assert_eq!(red_drops(600_000, 10_000), 10_000);
}

/// With p_a = p/(1 − k·p) after k admitted arrivals, the gap between drops is uniform on 1 … 1/p. The
/// mean rate is then 2/(1/p + 1), not p (Floyd and Jacobson, §VII, method 2).
#[test]
fn red_spaces_drops_evenly_between_min_and_max() {
    for (backlog, p) in [(150_000, 0.025), (200_000, 0.05), (300_000, 0.1)] {
        let rate = 2.0 * p / (1.0 + p);
        // Uniform gaps vary less than geometric ones, so the binomial test is lenient.
        let drops = red_drops(backlog, 400_000);
        let p = fit::binomial(drops, 400_000, rate);
        assert!(p > 1e-3, "{drops} at {backlog}: p = {p}");
    }
}

#[test]
fn red_admits_less_than_1_over_p_arrivals_between_drops() {
    let mut aqm = aqm("red:min=100KB,max=300KB,p=10%,weight=100%");
    let admitted: Vec<bool> = (0..100_000)
        .map(|_| aqm.admit(Time::ZERO, 200_000, None))
        .collect();
    let longest = admitted
        .chunk_by(|a, b| a == b)
        .filter(|run| run[0])
        .map(<[bool]>::len)
        .max();
    assert_eq!(longest, Some(19));
}

#[test]
fn red_admits_a_short_burst_by_default() {
    let mut aqm = aqm("red:min=100KB");
    assert!((0..50).all(|n| aqm.admit(Time::ZERO, n * 1500, None)));
}

#[test]
fn tail_drops_nothing_by_itself() {
    let mut aqm = aqm("tail");
    assert!(aqm.admit(Time::ZERO, u64::MAX, None));
    assert_eq!(aqm.decide(Time::MAX, Time::MAX, u64::MAX), AqmVerdict::Keep);
}
