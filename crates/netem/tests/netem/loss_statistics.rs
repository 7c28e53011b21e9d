// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistical tests: losses have the configured distribution.

use longhaul_netem::{
    grammar::share_text,
    loss::{Loss, LossProcess},
    random::stream,
};
use longhaul_stats::fit;

/// Significance of the tests. A correct generator fails for one seed in a thousand. The seeds here are
/// fixed, so a failure means that the generator has changed.
const SIGNIFICANCE: f64 = 1e-3;

fn binomial_fits(successes: u64, trials: u64, p: f64) -> bool {
    fit::binomial(successes, trials, p) > SIGNIFICANCE
}

fn geometric_fits(lengths: &[u64], p: f64) -> bool {
    fit::geometric(lengths, p).expect("enough runs") > SIGNIFICANCE
}

/// Returns for each segment whether it is lost.
fn losses(rule: &str, seed: u64, segments: usize) -> Vec<bool> {
    let loss: Loss = rule.parse().unwrap();
    let mut process = LossProcess::new(&loss, stream(seed, "loss"));
    (0..segments).map(|_| process.occurs()).collect()
}

fn count_lost(losses: &[bool]) -> u64 {
    losses.iter().filter(|lost| **lost).count() as u64
}

/// Returns the lengths of the runs of lost segments, or of the others. The last run is left out, because the end of the
/// sequence cuts it.
fn runs(losses: &[bool], lost: bool) -> Vec<u64> {
    let runs: Vec<&[bool]> = losses.chunk_by(|a, b| a == b).collect();
    let whole = runs[..runs.len() - 1].iter();
    whole
        .filter(|run| run[0] == lost)
        .map(|run| run.len() as u64)
        .collect()
}

#[test]
fn fits_a_binomial_distribution_when_independent() {
    for (p, segments) in [
        (0.5, 100_000),
        (0.1, 200_000),
        (0.01, 1_000_000),
        (0.001, 2_000_000),
        (0.0001, 2_000_000),
        (0.000_03, 3_000_000),
    ] {
        for seed in 0..3 {
            let lost = count_lost(&losses(&share_text(p), seed, segments));
            assert!(
                binomial_fits(lost, segments as u64, p),
                "{lost} of {segments} at {p}"
            );
        }
    }
}

#[test]
fn has_geometric_runs_when_independent() {
    for p in [0.3, 0.02] {
        let losses = losses(&share_text(p), 4, 500_000);
        assert!(geometric_fits(&runs(&losses, true), 1.0 - p));
        assert!(geometric_fits(&runs(&losses, false), p));
    }
}

#[test]
fn detects_a_wrong_rate() {
    let losses = losses("1.1%", 0, 1_000_000);
    assert!(!binomial_fits(count_lost(&losses), 1_000_000, 0.01));
    assert!(!geometric_fits(&runs(&losses, false), 0.01));
}

#[test]
fn has_geometric_bursts_and_gaps_with_gilbert() {
    for (p, r) in [(0.01, 0.3), (0.05, 0.5), (0.002, 0.1)] {
        let losses = losses(
            &format!("gilbert:p={},r={}", share_text(p), share_text(r)),
            5,
            1_000_000,
        );
        assert!(
            geometric_fits(&runs(&losses, true), r),
            "bursts at p={p}, r={r}"
        );
        assert!(
            geometric_fits(&runs(&losses, false), p),
            "gaps at p={p}, r={r}"
        );
    }
}

#[test]
fn loses_the_mean_share_with_gilbert_elliott() {
    let rule = "gilbert:p=1%,r=20%,good=0.1%,bad=60%";
    let mean = rule.parse::<Loss>().unwrap().mean();
    let share = count_lost(&losses(rule, 6, 4_000_000)) as f64 / 4e6;
    // Losses are correlated: the variance of the share is at most (1 + 2λ/(1 − λ)) times the binomial
    // one, with λ = 1 − p − r = 0.79. Four standard deviations are 0.0011 here.
    assert!(
        (share - mean).abs() < 0.0011,
        "{share} lost, {mean} configured"
    );
}

#[test]
fn repeats_the_pattern_of_a_seed() {
    let rule = "gilbert:p=1%,r=30%,bad=50%";
    assert_eq!(losses(rule, 7, 100_000), losses(rule, 7, 100_000));
    assert_ne!(losses(rule, 7, 100_000), losses(rule, 8, 100_000));
}
