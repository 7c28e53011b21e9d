// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistical tests: jitter has the declared distribution.

use longhaul_netem::{
    jitter::{Jitter, JitterProcess},
    random::stream,
};
use longhaul_stats::fit;

/// Whether offsets of `rule` under `seed` fit the distribution of `declared`, at significance 10⁻³. A
/// correct generator fails for one seed in a thousand, and the seeds here are fixed.
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
