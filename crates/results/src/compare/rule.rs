// SPDX-License-Identifier: MIT OR Apache-2.0
//! When two sets of repeated measurements differ by more than noise.

use crate::summary::Summary;
use longhaul_report::registry::Better;
use serde::Serialize;

/// How B stands to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// By more than noise.
    Higher,
    /// By more than noise.
    Lower,
    /// Noise explains the difference.
    Noise,
    /// One repetition says nothing about noise.
    Unknown,
    /// The machine was too busy for every run of one side.
    Disturbed,
}

/// What B's figure is to a reader, by whether more or less of the metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Better,
    Worse,
    /// Beyond noise, of a metric of which neither is better.
    Other,
    /// Not beyond noise.
    Same,
    /// One run, or a machine that was too busy.
    Unknown,
}

impl Verdict {
    pub(crate) fn change(self, better: Better) -> Change {
        match (self, better) {
            (Self::Noise, _) => Change::Same,
            (Self::Unknown | Self::Disturbed, _) => Change::Unknown,
            (_, Better::Neither) => Change::Other,
            (Self::Higher, Better::More) | (Self::Lower, Better::Less) => Change::Better,
            (Self::Higher, Better::Less) | (Self::Lower, Better::More) => Change::Worse,
        }
    }
}

/// From so many repetitions on both sides, a test of ranks decides.
const RANKED_MIN: usize = 5;
/// Fewer than this many say nothing.
const RANGED_MIN: usize = 2;
/// A smaller chance that two such samples are of one kind counts as a difference. Five against five,
/// all apart, have 0.008; of a hundred figures that do not differ, about one is marked.
const CHANCE_MAX: f64 = 0.01;
/// Differences of medians that are too small to matter, relative to the smaller.
const RANKED_SHARE: f64 = 0.02;
/// More, where only ranges speak: three runs against three lie apart by chance once in ten.
const RANGED_SHARE: f64 = 0.05;

/// How probable it is that so many runs on either side lie apart though nothing differs: one of all ways to deal them
/// out has those of A below, and one above.
pub(crate) fn chance_apart(a: usize, b: usize) -> f64 {
    let ways = (1..=a).fold(1.0, |ways, n| ways * (b + n) as f64 / n as f64);
    (2.0 / ways).min(1.0)
}

/// Whether ranges alone decide over so many runs.
pub(crate) fn is_ranged(a: usize, b: usize) -> bool {
    (RANGED_MIN..RANKED_MIN).contains(&a.min(b))
}

/// The rule, for people: a line for each number of runs.
#[must_use]
pub fn rule_of_noise() -> [String; 4] {
    let percent = |share: f64| (share * 100.0).round();
    [
        format!(
            "{RANKED_MIN} runs and more on each side: Mann and Whitney’s test says p < {CHANCE_MAX}, \
             and the medians differ by more than {} %",
            percent(RANKED_SHARE)
        ),
        format!(
            "{RANGED_MIN} to {}: the ranges from least to most do not overlap, \
             and the medians differ by more than {} %",
            RANKED_MIN - 1,
            percent(RANGED_SHARE)
        ),
        format!(
            "what that can show: where nothing differs, two runs against two lie apart by chance once in {:.0}, three \
             against three once in {:.0}, four against four once in {:.0}",
            1.0 / chance_apart(2, 2),
            1.0 / chance_apart(3, 3),
            1.0 / chance_apart(4, 4)
        ),
        "1, or runs that the machine was too busy for: nothing is said".to_owned(),
    ]
}

/// The verdict over all values of A and of B, in any order, none of them empty.
pub(crate) fn verdict(a: &[f64], b: &[f64]) -> Verdict {
    let (Some(ours), Some(theirs)) = (summary(a), summary(b)) else {
        return Verdict::Unknown;
    };
    let fewest = a.len().min(b.len());
    let apart = |share: f64| {
        let least = ours.median.abs().min(theirs.median.abs());
        (theirs.median - ours.median).abs() > share * least
    };
    let differ = match fewest {
        0..RANGED_MIN => return Verdict::Unknown,
        RANGED_MIN..RANKED_MIN => {
            apart(RANGED_SHARE) && (ours.max < theirs.min || theirs.max < ours.min)
        }
        _ => apart(RANKED_SHARE) && chance(a, b) < CHANCE_MAX,
    };
    match (differ, theirs.median > ours.median) {
        (false, _) => Verdict::Noise,
        (true, true) => Verdict::Higher,
        (true, false) => Verdict::Lower,
    }
}

fn summary(values: &[f64]) -> Option<Summary> {
    Summary::of(values.iter().copied())
}

/// Values up to which ranks are counted one by one: 60 choose 30 is far below what a double holds exactly enough.
const EXACT_MAX: usize = 60;

/// Mann and Whitney's test, two-sided: how probable such a sum of ranks or a more extreme one is if both
/// are of one kind. Exact up to sixty values, ties included; beyond that by the normal distribution.
fn chance(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_ranks(a, b);
    let sum: usize = ranks[..a.len()].iter().sum();
    match ranks.len() <= EXACT_MAX {
        true => exact(&ranks, a.len(), sum),
        false => normal(&ranks, a.len(), sum),
    }
}

/// Twice the rank of each value, those of A first: equal values share the middle of theirs.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let less = all.iter().filter(|other| *other < value).count();
        let equal = all.iter().filter(|other| *other == value).count();
        2 * less + equal + 1
    };
    all.iter().map(rank).collect()
}

/// Over all ways to choose as many of the ranks.
fn exact(ranks: &[usize], chosen: usize, sum: usize) -> f64 {
    let total: usize = ranks.iter().sum();
    // ways[k][s]: how often k of the ranks so far have the sum s.
    let mut ways = vec![vec![0.0f64; total + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for k in (1..=chosen).rev() {
            for s in (*rank..=total).rev() {
                ways[k][s] += ways[k - 1][s - rank];
            }
        }
    }
    let all: f64 = ways[chosen].iter().sum();
    // The mean of the sum, times two so that it is whole.
    let middle = total * chosen;
    let extreme =
        |s: usize| (s * ranks.len()).abs_diff(middle) >= (sum * ranks.len()).abs_diff(middle);
    let more = (0..=total).filter(|s| extreme(*s)).map(|s| ways[chosen][s]);
    more.sum::<f64>() / all
}

/// With the variance that ties leave, and half a step for the steps of the sum.
fn normal(ranks: &[usize], chosen: usize, sum: usize) -> f64 {
    let (n, k) = (ranks.len() as f64, chosen as f64);
    let ranks: Vec<f64> = ranks.iter().map(|rank| *rank as f64 / 2.0).collect();
    let mean = ranks.iter().sum::<f64>() / n;
    let spread = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let deviation = (k * (n - k) / n * spread).sqrt();
    let away = ((sum as f64 / 2.0 - k * mean).abs() - 0.5).max(0.0);
    match deviation > 0.0 {
        true => 2.0 * upper_tail(away / deviation),
        false => 1.0,
    }
}

/// How probable it is that a normal value is above `z` ≥ 0 (Abramowitz and Stegun 26.2.17, to 7.5e-8).
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
    fn what_differs_is_better_or_worse_only_where_one_way_is() {
        assert_eq!(Verdict::Higher.change(Better::More), Change::Better);
        assert_eq!(Verdict::Higher.change(Better::Less), Change::Worse);
        assert_eq!(Verdict::Lower.change(Better::Neither), Change::Other);
        assert_eq!(Verdict::Noise.change(Better::Neither), Change::Same);
    }

    #[test]
    fn few_runs_lie_apart_by_chance_so_often() {
        assert!((chance_apart(2, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((chance_apart(3, 3) - 0.1).abs() < 1e-12);
        assert!((chance_apart(2, 3) - 0.2).abs() < 1e-12);
        assert!((chance_apart(4, 4) - 2.0 / 70.0).abs() < 1e-12);
        // As the test of ranks has it.
        assert_eq!(
            chance_apart(3, 3),
            exact(
                &doubled_ranks(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]),
                3,
                2 + 4 + 6
            )
        );
        assert!(is_ranged(2, 9) && !is_ranged(5, 5) && !is_ranged(1, 5));
    }

    #[test]
    fn one_run_says_nothing_and_few_must_lie_apart() {
        assert_eq!(verdict(&[1.0], &[9.0, 9.1]), Verdict::Unknown);
        assert_eq!(verdict(&[1.0, 1.1], &[1.2, 1.3]), Verdict::Higher);
        assert_eq!(verdict(&[1.2, 1.3], &[1.0, 1.1]), Verdict::Lower);
        assert_eq!(
            verdict(&[1.0, 1.2], &[1.1, 1.3]),
            Verdict::Noise,
            "they overlap"
        );
        assert_eq!(
            verdict(&[1.00, 1.01], &[1.03, 1.04]),
            Verdict::Noise,
            "3 % are too little"
        );
    }

    #[test]
    fn many_runs_are_ranked() {
        let a = [1.00, 1.01, 1.02, 1.03, 1.04];
        assert_eq!(verdict(&a, &a.map(|x| x + 0.05)), Verdict::Higher);
        assert_eq!(verdict(&a, &a.map(|x| x + 0.03)), Verdict::Noise);
        assert_eq!(verdict(&a, &a.map(|x| 1.005 * x + 0.04)), Verdict::Higher);
        assert_eq!(verdict(&a, &a.map(|x| x + 0.01)), Verdict::Noise);
        assert_eq!(verdict(&[0.0; 6], &[0.0; 6]), Verdict::Noise);
        assert_eq!(verdict(&[0.0; 6], &[3.0; 6]), Verdict::Higher);
    }

    #[test]
    fn the_chance_is_that_of_the_tables() {
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        let close = |one: f64, other: f64, error: f64| {
            assert!((one - other).abs() < error, "{one}, not {other}");
        };
        close(chance(&five, &five.map(|x| x + 10.0)), 2.0 / 252.0, 1e-12);
        // U = 2 of 25: 4 of 252 ways on each side are as extreme (Mann and Whitney 1947).
        close(
            chance(&[1.0, 2.0, 3.0, 5.0, 6.0], &[4.0, 7.0, 8.0, 9.0, 10.0]),
            8.0 / 252.0,
            1e-12,
        );
        close(chance(&five, &five), 1.0, 1e-12);
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        let later: Vec<f64> = many.iter().map(|x| x + 10.5).collect();
        let ranks = doubled_ranks(&many, &later);
        let sum = ranks[..40].iter().sum();
        close(normal(&ranks, 40, sum), exact(&ranks, 40, sum), 1e-3);
    }
}
