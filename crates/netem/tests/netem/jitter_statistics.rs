// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jitter has the declared distribution.

use longhaul_netem::{
    jitter::{Jitter, JitterProcess},
    random::stream,
};
use longhaul_stats::fit;

/// Whether offsets of `rule` under `seed` pass for those of `declared`, at significance 10⁻³: a
/// correct generator fails one seed in a thousand, and the seeds here are fixed.
fn fits(rule: &str, seed: u64, declared: &Jitter) -> bool {
    fit::kolmogorov_smirnov(&offsets(rule, seed), |x| declared.cdf(x)) > 1e-3
}

fn offsets(rule: &str, seed: u64) -> Vec<f64> {
    let jitter: Jitter = rule.parse().unwrap();
    let mut process = JitterProcess::new(&jitter, stream(seed, "jitter"));
    (0..200_000).map(|_| process.offset() as f64).collect()
}

const RULES: [&str; 3] = ["2ms", "uniform:2ms", "pareto:2ms"];

#[test]
fn each_shape_fits_its_distribution_function() {
    for rule in RULES {
        for seed in 0..3 {
            let jitter: Jitter = rule.parse().unwrap();
            assert!(fits(rule, seed, &jitter), "{rule}, seed {seed}");
        }
    }
}

#[test]
fn the_test_tells_the_shapes_and_spreads_apart() {
    for other in ["2050us", "uniform:1950us", "pareto:2050us"] {
        let declared: Jitter = other.parse().unwrap();
        for rule in RULES {
            assert!(!fits(rule, 1, &declared), "{rule} passes for {other}");
        }
    }
}

#[test]
fn the_mean_offset_is_zero() {
    for rule in RULES {
        let offsets = offsets(rule, 2);
        let mean = offsets.iter().sum::<f64>() / offsets.len() as f64;
        // Four standard errors of a deviation of at most 2 ms.
        assert!(
            mean.abs() < 4.0 * 2e6 / (offsets.len() as f64).sqrt(),
            "{rule}: {mean}"
        );
    }
}
