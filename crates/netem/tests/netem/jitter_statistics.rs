// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistical tests: jitter has the declared distribution.

use longhaul_netem::{
    jitter::{Jitter, JitterProcess},
    random::stream,
};
use longhaul_stats::fit;
use longhaul_units::Time;

/// Whether offsets of `rule` under `seed` fit the distribution of `declared`, at significance 10⁻³. A
/// correct generator fails for one seed in a thousand, and the seeds here are fixed.
fn fits(rule: &str, seed: u64, declared: &Jitter) -> bool {
    fit::kolmogorov_smirnov(&offsets(rule, seed), |x| declared.cdf(x)) > 1e-3
}

fn offsets(rule: &str, seed: u64) -> Vec<f64> {
    let jitter: Jitter = rule.parse().unwrap();
    let mut process = JitterProcess::new(&jitter, stream(seed, "jitter"), Time::ZERO);
    let times = (0..200_000).map(Time::from_millis);
    times.map(|now| process.offset(now) as f64).collect()
}

const RULES: [&str; 5] = [
    "2ms",
    "uniform:2ms",
    "pareto:2ms",
    "lognormal:2ms",
    "lognormal:2ms,sigma=1",
];

#[test]
fn fits_each_declared_distribution() {
    for rule in RULES {
        for seed in 0..3 {
            let jitter: Jitter = rule.parse().unwrap();
            assert!(fits(rule, seed, &jitter), "{rule}, seed {seed}");
        }
    }
}

#[test]
fn detects_wrong_distributions_and_spreads() {
    for other in ["2050us", "uniform:1950us", "pareto:2050us"] {
        let declared: Jitter = other.parse().unwrap();
        for rule in RULES {
            assert!(!fits(rule, 1, &declared), "{rule} passes for {other}");
        }
    }
}

#[test]
fn has_a_mean_offset_of_zero() {
    for rule in RULES {
        let offsets = offsets(rule, 2);
        let mean = offsets.iter().sum::<f64>() / offsets.len() as f64;
        // Tolerance: four standard errors, at a standard deviation of at most 2 ms.
        assert!(
            mean.abs() < 4.0 * 2e6 / (offsets.len() as f64).sqrt(),
            "{rule}: {mean}"
        );
    }
}

/// A jitter that varies slowly has the declared distribution at any time. Values that are a correlation time apart are
/// independent, so the test may take them.
#[test]
fn slow_jitter_has_the_declared_distribution() {
    for rule in RULES {
        let slow: Jitter = format!("{rule},correlation=100ms").parse().unwrap();
        let mut process = JitterProcess::new(&slow, stream(4, "jitter"), Time::ZERO);
        let times = (0..100_000).map(|n| Time::from_micros(n * 100_000 + 37_000));
        let offsets: Vec<_> = times.map(|now| process.offset(now) as f64).collect();
        let p = fit::kolmogorov_smirnov(&offsets, |x| slow.cdf(x));
        assert!(p > 1e-3, "{rule}: p = {p}");
    }
}

/// Sends segments every 12 µs, as at 1 Gbit/s. Returns the mean offset of their exits from the delay, in ms, and the
/// number of exits that the order made later.
fn offsets_in_order(rule: &str) -> (f64, usize) {
    let jitter: Jitter = rule.parse().unwrap();
    let mut process = JitterProcess::new(&jitter, stream(5, "jitter"), Time::ZERO);
    let (mut latest, mut sum, mut held) = (0, 0, 0);
    for number in 0..200_000_i64 {
        let sent = number * 12_000;
        let own = sent + process.offset(Time::from_nanos(sent as u64));
        held += usize::from(own < latest);
        latest = latest.max(own);
        sum += latest - sent;
    }
    (sum as f64 / 2e11, held)
}

#[test]
fn slow_jitter_keeps_order_by_itself_and_independent_jitter_lengthens_delays() {
    for rule in [
        "2ms,correlation=40ms",
        "uniform:2ms,correlation=40ms",
        "lognormal:2ms,correlation=80ms",
    ] {
        let (mean_ms, held) = offsets_in_order(rule);
        // The tail of the lognormal distribution falls faster than time passes once in some thousand correlation times.
        assert!(held < 200, "{rule}: {mean_ms} ms, {held} held");
    }
    let (mean_ms, held) = offsets_in_order("2ms");
    assert!(held > 180_000 && mean_ms > 4.0, "{mean_ms} ms, {held} held");
    let is_long = |rule: &str| rule.parse::<Jitter>().unwrap().lengthens_delays();
    assert!(
        is_long("2ms")
            && !is_long("2ms,reorder")
            && !is_long("2ms,correlation=40ms")
            && !is_long("none")
    );
}
