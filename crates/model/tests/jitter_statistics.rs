// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jitter has the declared distribution.

mod statistics;

use model::link::{
    jitter::{Jitter, JitterProcess},
    random::stream,
};
use statistics::kolmogorov_smirnov_fits;

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
            let fits = kolmogorov_smirnov_fits(&mut offsets(rule, seed), |x| jitter.cdf(x));
            assert!(fits, "{rule}, seed {seed}");
        }
    }
}

#[test]
fn the_test_tells_the_shapes_and_spreads_apart() {
    for other in ["2050us", "uniform:1950us", "pareto:2050us"] {
        let declared: Jitter = other.parse().unwrap();
        for rule in RULES {
            let fits = kolmogorov_smirnov_fits(&mut offsets(rule, 1), |x| declared.cdf(x));
            assert!(!fits, "{rule} passes for {other}");
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
