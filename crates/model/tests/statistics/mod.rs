// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goodness-of-fit tests at significance 10⁻³: a correct generator fails one seed in a thousand,
//! and the seeds here are fixed, so a failure means that the generator changed.
#![allow(dead_code, reason = "each test binary uses its own part")]

/// Whether `successes` of `trials` fit probability `p` in both tails of the binomial distribution
/// (normal approximation with continuity correction; wants n·p·(1 − p) above 25).
pub(crate) fn binomial_fits(successes: u64, trials: u64, p: f64) -> bool {
    let (mean, variance) = (trials as f64 * p, trials as f64 * p * (1.0 - p));
    assert!(variance > 25.0, "too few trials for the approximation");
    ((successes as f64 - mean).abs() - 0.5) / variance.sqrt() < 3.291
}

/// Whether run `lengths` (each at least 1) fit the geometric law with stopping probability `p`:
/// χ² over twenty cells of about equal probability, fewer where single lengths are likelier.
pub(crate) fn geometric_fits(lengths: &[u64], p: f64) -> bool {
    const CELLS: u64 = 20;
    let n = lengths.len() as f64;
    let quantile = |share: f64| ((1.0 - share).ln() / (1.0 - p).ln()).ceil() as u64;
    let mut edges: Vec<u64> = (0..CELLS)
        .map(|i| quantile(i as f64 / CELLS as f64))
        .collect();
    edges.dedup();
    let longer = |than: u64| n * (1.0 - p).powf(than as f64);
    let cell = |i: usize| {
        let (above, upto) = (edges[i], edges.get(i + 1).copied());
        let expected = longer(above) - upto.map_or(0.0, longer);
        let inside = |length: &&u64| **length > above && upto.is_none_or(|end| **length <= end);
        let seen = lengths.iter().filter(inside).count() as f64;
        assert!(expected >= 10.0, "too few runs for the approximation");
        (seen - expected).powi(2) / expected
    };
    let distance: f64 = (0..edges.len()).map(cell).sum();
    distance < chi_square_limit(edges.len() as u64 - 1)
}

/// The 99.9th percentile of χ² by Wilson and Hilferty's cube root, within 3 %.
fn chi_square_limit(degrees: u64) -> f64 {
    let k = degrees as f64;
    let spread = 2.0 / (9.0 * k);
    k * (1.0 - spread + 3.0902 * spread.sqrt()).powi(3)
}

/// Whether `samples` fit the distribution function `cdf`: Kolmogorov and Smirnov, asymptotic.
pub(crate) fn kolmogorov_smirnov_fits(samples: &mut [f64], cdf: impl Fn(f64) -> f64) -> bool {
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    let distance = |(i, x): (usize, &f64)| {
        let (below, f, above) = (i as f64 / n, cdf(*x), (i + 1) as f64 / n);
        (f - below).abs().max((above - f).abs())
    };
    let largest = samples.iter().enumerate().map(distance).fold(0.0, f64::max);
    largest * n.sqrt() < 1.9495
}
