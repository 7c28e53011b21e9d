// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of goodness of fit: does a sample follow a given distribution?
//!
//! Every function returns a p-value: the probability of a sample at least as extreme as this one, if the distribution
//! is the given one. A sound generator gives a p-value below 0.001 for one seed in a thousand. A wrong generator gives
//! such a p-value for nearly every seed, once the sample is large enough.

use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF};

/// Two-sided p-value of `successes` in `trials` independent trials of probability `p`: twice the smaller of the two
/// exact binomial tails, and at most 1.
///
/// # Panics
/// If `p` is not a probability.
#[must_use]
pub fn binomial(successes: u64, trials: u64, p: f64) -> f64 {
    let distribution = Binomial::new(p, trials).expect("p is a probability");
    let at_most = distribution.cdf(successes);
    let at_least = successes
        .checked_sub(1)
        .map_or(1.0, |less| distribution.sf(less));
    (2.0 * at_most.min(at_least)).min(1.0)
}

/// Number of cells of the χ² test. The longest runs may have one more cell.
const CELLS: f64 = 20.0;
/// Smallest expected number of runs in a cell: twice the customary 5.
const EXPECTED_MIN: f64 = 10.0;

/// p-value of run `lengths`, each at least 1, under the geometric distribution: a run ends with probability `p` after
/// each member. The χ² test has about twenty cells of equal probability, fewer for few runs. `None` if there are too
/// few runs for two cells, or if `p` is 0 or 1.
#[must_use]
pub fn geometric(lengths: &[u64], p: f64) -> Option<f64> {
    let n = lengths.len() as f64;
    let edges = cell_edges(n, p)?;
    let longer = |than: u64| n * (1.0 - p).powf(than as f64);
    let deviation = |i: usize| {
        let (lower, upper) = (edges[i], edges.get(i + 1).copied());
        let expected = longer(lower) - upper.map_or(0.0, longer);
        let inside = |length: &&u64| **length > lower && upper.is_none_or(|end| **length <= end);
        let observed = lengths.iter().filter(inside).count() as f64;
        (observed - expected).powi(2) / expected
    };
    let sum = (0..edges.len()).map(deviation).sum();
    let distribution = ChiSquared::new((edges.len() - 1) as f64).ok()?;
    Some(distribution.sf(sum))
}

/// Returns the lower edges of the cells for `n` runs. A length equal to an edge belongs to the cell below it. A cell
/// ends at the first length at which it expects its share of the runs, if the rest is enough for another cell. `None`
/// if there are fewer than two cells.
fn cell_edges(n: f64, p: f64) -> Option<Vec<u64>> {
    let share = (EXPECTED_MIN / n).max(1.0 / CELLS);
    let mut edges = vec![0];
    let mut tail = 1.0;
    while p > 0.0 && p < 1.0 && tail > share {
        let edge = ((tail - share).ln() / (1.0 - p).ln()).ceil();
        tail = (1.0 - p).powf(edge);
        if tail * n >= EXPECTED_MIN {
            edges.push(edge as u64);
        }
    }
    (edges.len() > 1).then_some(edges)
}

/// p-value of `samples` under the continuous distribution function `cdf`, by the test of Kolmogorov and Smirnov with
/// Stephens's correction for finite samples (1970). The p-value is accurate from a few tens of samples on.
#[must_use]
pub fn kolmogorov_smirnov(samples: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    let distance = |(i, x): (usize, &f64)| {
        let (below, f, above) = (i as f64 / n, cdf(*x), (i + 1) as f64 / n);
        (f - below).abs().max((above - f).abs())
    };
    let largest = samples.iter().enumerate().map(distance).fold(0.0, f64::max);
    kolmogorov_tail((n.sqrt() + 0.12 + 0.11 / n.sqrt()) * largest)
}

/// P(K > x) of Kolmogorov's distribution, 2 Σ (−1)^(k−1) e^(−2k²x²). Below x = 0.3 it is 1 within 10⁻⁵. From there on,
/// thirty terms give all digits of a double.
fn kolmogorov_tail(x: f64) -> f64 {
    if x < 0.3 {
        return 1.0;
    }
    let term = |k: i32| (-2.0 * f64::from(k * k) * x * x).exp();
    let sum: f64 = (1..=30)
        .map(|k| if k % 2 == 1 { term(k) } else { -term(k) })
        .sum();
    (2.0 * sum).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(actual: f64, expected: f64) {
        assert!(
            (actual - expected).abs() < 1e-3 * expected.max(1e-3),
            "{actual} instead of {expected}"
        );
    }

    /// With ten coins, P(at most 1 head) = 11/1024.
    #[test]
    fn binomial_tails_are_exact() {
        assert_near(binomial(1, 10, 0.5), 22.0 / 1024.0);
        assert_near(binomial(9, 10, 0.5), 22.0 / 1024.0);
        assert_near(binomial(5, 10, 0.5), 1.0);
        assert_near(binomial(0, 10, 0.5), 2.0 / 1024.0);
        assert_near(binomial(0, 10, 0.0), 1.0);
        assert!(binomial(1, 10, 0.0) < 1e-12);
    }

    /// Kolmogorov's own table: 5 % at 1.358, 1 % at 1.628, 0.1 % at 1.949.
    #[test]
    fn kolmogorov_tail_matches_the_table() {
        for (x, p) in [
            (0.8276, 0.5),
            (1.3581, 0.05),
            (1.6276, 0.01),
            (1.9495, 0.001),
        ] {
            assert_near(kolmogorov_tail(x), p);
        }
        assert!(kolmogorov_tail(0.299) == 1.0 && kolmogorov_tail(0.301) > 0.9999);
    }

    #[test]
    fn kolmogorov_smirnov_takes_the_largest_distance() {
        let even: Vec<f64> = (0..100).map(|i| (f64::from(i) + 0.5) / 100.0).collect();
        assert!(kolmogorov_smirnov(&even, |x| x) > 0.999);
        let shifted: Vec<f64> = even.iter().map(|x| x + 0.2).collect();
        let p = kolmogorov_smirnov(&shifted, |x| x.clamp(0.0, 1.0));
        assert_near(p, 2.0 * (-2.0_f64 * (10.131 * 0.205_f64).powi(2)).exp());
    }

    /// Runs of only two lengths, each as frequent as expected, have a χ² sum of 0.
    #[test]
    fn geometric_compares_runs_with_their_expected_number() {
        let lengths: Vec<u64> = (0..20).map(|i| if i < 10 { 1 } else { 2 }).collect();
        assert_near(geometric(&lengths, 0.5).unwrap(), 1.0);
        // Ones only: (20 − 10)²/10 twice is χ² = 20 with one degree of freedom.
        assert!(geometric(&[1; 20], 0.5).unwrap() < 1e-5);
        assert_eq!(geometric(&[1; 19], 0.5), None, "too few for two cells");
        assert_eq!(geometric(&[1; 1000], 1.0), None);
        assert_eq!(geometric(&[], 0.5), None);
    }

    #[test]
    fn every_cell_expects_the_minimum_of_runs() {
        for p in [0.000_01, 0.01, 0.25, 0.5, 0.9] {
            for n in [25.0, 300.0, 1e5] {
                let Some(edges) = cell_edges(n, p) else {
                    continue;
                };
                let longer = |than: u64| n * (1.0 - p).powf(than as f64);
                let mut ends = edges
                    .windows(2)
                    .map(|ends| longer(ends[0]) - longer(ends[1]));
                assert!(ends.all(|expected| expected > 9.999), "p = {p}, n = {n}");
                assert!(longer(edges[edges.len() - 1]) > 9.999 && edges.len() <= 21);
            }
        }
    }
}
