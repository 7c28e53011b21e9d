// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule for the significance of a difference between two sets of repeated measurements.

use crate::summary::Summary;
use longhaul_report::registry::Better;
use serde::Serialize;

/// Verdict about the candidate compared with the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Significantly higher.
    Higher,
    /// Significantly lower.
    Lower,
    /// Not significantly different.
    NotSignificant,
    /// Unknown, because one side has fewer than two runs.
    Unknown,
    /// Unknown, because the emulator was late in every run of one side.
    Overloaded,
}

/// Change from the baseline to the candidate, with respect to the metric's better direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Better,
    Worse,
    /// Significant difference of a metric without a better direction.
    Other,
    /// No significant difference.
    Same,
    /// Unknown: one run, or an overloaded host.
    Unknown,
}

impl Verdict {
    pub(crate) fn change(self, better: Better) -> Change {
        match (self, better) {
            (Self::NotSignificant, _) => Change::Same,
            (Self::Unknown | Self::Overloaded, _) => Change::Unknown,
            (_, Better::Neither) => Change::Other,
            (Self::Higher, Better::More) | (Self::Lower, Better::Less) => Change::Better,
            (Self::Higher, Better::Less) | (Self::Lower, Better::More) => Change::Worse,
        }
    }
}

/// Minimum number of repetitions on each side for a rank test.
const RANK_TEST_RUNS_MIN: usize = 5;
/// Minimum number of repetitions on each side for a comparison of ranges; fewer give no verdict.
const RANGE_RUNS_MIN: usize = 2;
/// Significance level of the rank test. Five runs against five without overlap have p = 0.008. Of a hundred metrics
/// that do not differ, about one is called significant by chance.
const P_VALUE_MAX: f64 = 0.01;
/// Smallest relevant difference of medians for the rank test, relative to the smaller median.
const RANK_TEST_DIFFERENCE_MIN: f64 = 0.02;
/// Smallest relevant difference of medians for the comparison of ranges, relative to the smaller median. It is larger
/// than for the rank test: the ranges of three runs against three are disjoint by chance in one of ten cases.
const RANGE_DIFFERENCE_MIN: f64 = 0.05;

/// Returns the probability that the ranges of `a` and `b` runs are disjoint by chance. Of all ways to divide the values
/// between the sides, one puts all of the first side below the second, and one puts them above.
pub(crate) fn disjoint_probability(a: usize, b: usize) -> f64 {
    let ways = (1..=a).fold(1.0, |ways, n| ways * (b + n) as f64 / n as f64);
    (2.0 / ways).min(1.0)
}

/// Returns whether these numbers of runs are compared by ranges, and not by the rank test.
pub(crate) fn is_judged_by_ranges(a: usize, b: usize) -> bool {
    (RANGE_RUNS_MIN..RANK_TEST_RUNS_MIN).contains(&a.min(b))
}

/// Describes the rule: a line for each number of runs.
#[must_use]
pub fn describe_significance_rule() -> [String; 4] {
    let percent = |share: f64| (share * 100.0).round();
    [
        format!(
            "{RANK_TEST_RUNS_MIN} or more runs per side: p < {P_VALUE_MAX} in the Mann–Whitney test, and medians more than \
             {} % apart",
            percent(RANK_TEST_DIFFERENCE_MIN)
        ),
        format!(
            "{RANGE_RUNS_MIN} to {} runs per side: ranges (minimum to maximum) do not overlap, and medians more than {} % \
             apart",
            RANK_TEST_RUNS_MIN - 1,
            percent(RANGE_DIFFERENCE_MIN)
        ),
        format!(
            "false positives with 2, 3 and 4 runs per side: 1 in {:.0}, 1 in {:.0} and 1 in {:.0} metrics",
            1.0 / disjoint_probability(2, 2),
            1.0 / disjoint_probability(3, 3),
            1.0 / disjoint_probability(4, 4)
        ),
        "1 run per side, or an emulator that was late: no verdict".to_owned(),
    ]
}

/// Returns the verdict for all values of both sides, in any order. It is [`Verdict::Unknown`] if one side has fewer
/// than two values.
pub(crate) fn verdict(baseline: &[f64], candidate: &[f64]) -> Verdict {
    let (Some(before), Some(after)) = (summary(baseline), summary(candidate)) else {
        return Verdict::Unknown;
    };
    let fewest = baseline.len().min(candidate.len());
    let exceeds = |share: f64| {
        let least = before.median.abs().min(after.median.abs());
        (after.median - before.median).abs() > share * least
    };
    let differ = match fewest {
        0..RANGE_RUNS_MIN => return Verdict::Unknown,
        RANGE_RUNS_MIN..RANK_TEST_RUNS_MIN => {
            exceeds(RANGE_DIFFERENCE_MIN) && (before.max < after.min || after.max < before.min)
        }
        _ => exceeds(RANK_TEST_DIFFERENCE_MIN) && p_value(baseline, candidate) < P_VALUE_MAX,
    };
    match (differ, after.median > before.median) {
        (false, _) => Verdict::NotSignificant,
        (true, true) => Verdict::Higher,
        (true, false) => Verdict::Lower,
    }
}

fn summary(values: &[f64]) -> Option<Summary> {
    Summary::of(values.iter().copied())
}

/// Maximum number of values for the exact test. The number of ways is at most 60 choose 30 (1.2e17), of
/// which an `f64` loses only the last two digits.
const EXACT_MAX: usize = 60;

/// Returns the two-sided p-value of the Mann–Whitney test: the probability of such a rank sum, or a more extreme one,
/// if both samples have the same distribution. Exact for up to 60 values, ties included. For more values it uses the
/// normal distribution.
fn p_value(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_ranks(a, b);
    let sum: usize = ranks[..a.len()].iter().sum();
    if ranks.len() <= EXACT_MAX {
        exact_p_value(&ranks, a.len(), sum)
    } else {
        normal_p_value(&ranks, a.len(), sum)
    }
}

/// Returns twice the rank of each value, so that all are integers. Those of `a` come first. Equal values share the mean
/// of their ranks.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let less = all.iter().filter(|other| *other < value).count();
        let equal = all.iter().filter(|other| *other == value).count();
        2 * less + equal + 1
    };
    all.iter().map(rank).collect()
}

/// Returns the exact p-value: the share of all ways to choose `sample_size` of the ranks whose sum is as extreme as
/// `sum`, the observed one.
fn exact_p_value(ranks: &[usize], sample_size: usize, sum: usize) -> f64 {
    let total: usize = ranks.iter().sum();
    // ways[k][s]: number of ways in which k of the ranks so far have the sum s.
    let mut ways = vec![vec![0.0f64; total + 1]; sample_size + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for k in (1..=sample_size).rev() {
            for s in (*rank..=total).rev() {
                ways[k][s] += ways[k - 1][s - rank];
            }
        }
    }
    let all: f64 = ways[sample_size].iter().sum();
    // The mean rank sum times the number of ranks. It is an integer, and the mean alone may not be.
    let middle = total * sample_size;
    let is_as_extreme =
        |s: usize| (s * ranks.len()).abs_diff(middle) >= (sum * ranks.len()).abs_diff(middle);
    let extreme_ways = (0..=total)
        .filter(|s| is_as_extreme(*s))
        .map(|s| ways[sample_size][s]);
    extreme_ways.sum::<f64>() / all
}

/// Returns the p-value by the normal distribution, with the variance corrected for ties and a continuity correction.
fn normal_p_value(ranks: &[usize], sample_size: usize, sum: usize) -> f64 {
    let (n, k) = (ranks.len() as f64, sample_size as f64);
    let ranks: Vec<f64> = ranks.iter().map(|rank| *rank as f64 / 2.0).collect();
    let mean = ranks.iter().sum::<f64>() / n;
    let spread = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let deviation = (k * (n - k) / n * spread).sqrt();
    let distance = ((sum as f64 / 2.0 - k * mean).abs() - 0.5).max(0.0);
    if deviation > 0.0 {
        2.0 * upper_tail(distance / deviation)
    } else {
        1.0
    }
}

/// Returns the probability that a standard normal value is above `z` ≥ 0 (Abramowitz and Stegun 26.2.17, error below
/// 7.5e-8).
fn upper_tail(z: f64) -> f64 {
    const B: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_better_or_worse_only_with_a_better_direction() {
        assert_eq!(Verdict::Higher.change(Better::More), Change::Better);
        assert_eq!(Verdict::Higher.change(Better::Less), Change::Worse);
        assert_eq!(Verdict::Lower.change(Better::Neither), Change::Other);
        assert_eq!(
            Verdict::NotSignificant.change(Better::Neither),
            Change::Same
        );
    }

    #[test]
    fn computes_chance_of_disjoint_ranges() {
        assert!((disjoint_probability(2, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((disjoint_probability(3, 3) - 0.1).abs() < 1e-12);
        assert!((disjoint_probability(2, 3) - 0.2).abs() < 1e-12);
        assert!((disjoint_probability(4, 4) - 2.0 / 70.0).abs() < 1e-12);
        // The rank test gives the same probability.
        assert_eq!(
            disjoint_probability(3, 3),
            exact_p_value(
                &doubled_ranks(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]),
                3,
                2 + 4 + 6
            )
        );
        assert!(
            is_judged_by_ranges(2, 9) && !is_judged_by_ranges(5, 5) && !is_judged_by_ranges(1, 5)
        );
    }

    #[test]
    fn judges_few_runs_by_ranges() {
        assert_eq!(verdict(&[1.0], &[9.0, 9.1]), Verdict::Unknown);
        assert_eq!(verdict(&[1.0, 1.1], &[1.2, 1.3]), Verdict::Higher);
        assert_eq!(verdict(&[1.2, 1.3], &[1.0, 1.1]), Verdict::Lower);
        assert_eq!(
            verdict(&[1.0, 1.2], &[1.1, 1.3]),
            Verdict::NotSignificant,
            "they overlap"
        );
        assert_eq!(
            verdict(&[1.00, 1.01], &[1.03, 1.04]),
            Verdict::NotSignificant,
            "3 % are too little"
        );
    }

    #[test]
    fn judges_many_runs_by_ranks() {
        let a = [1.00, 1.01, 1.02, 1.03, 1.04];
        assert_eq!(verdict(&a, &a.map(|x| x + 0.05)), Verdict::Higher);
        assert_eq!(verdict(&a, &a.map(|x| x + 0.03)), Verdict::NotSignificant);
        assert_eq!(verdict(&a, &a.map(|x| 1.005 * x + 0.04)), Verdict::Higher);
        assert_eq!(verdict(&a, &a.map(|x| x + 0.01)), Verdict::NotSignificant);
        assert_eq!(verdict(&[0.0; 6], &[0.0; 6]), Verdict::NotSignificant);
        assert_eq!(verdict(&[0.0; 6], &[3.0; 6]), Verdict::Higher);
    }

    #[test]
    fn p_values_match_published_tables() {
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        let close = |one: f64, other: f64, error: f64| {
            assert!((one - other).abs() < error, "{one}, not {other}");
        };
        close(p_value(&five, &five.map(|x| x + 10.0)), 2.0 / 252.0, 1e-12);
        // U = 2 of 25: 4 of 252 ways on each side are as extreme (Mann and Whitney 1947).
        close(
            p_value(&[1.0, 2.0, 3.0, 5.0, 6.0], &[4.0, 7.0, 8.0, 9.0, 10.0]),
            8.0 / 252.0,
            1e-12,
        );
        close(p_value(&five, &five), 1.0, 1e-12);
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        let later: Vec<f64> = many.iter().map(|x| x + 10.5).collect();
        let ranks = doubled_ranks(&many, &later);
        let sum = ranks[..40].iter().sum();
        close(
            normal_p_value(&ranks, 40, sum),
            exact_p_value(&ranks, 40, sum),
            1e-3,
        );
    }
}
