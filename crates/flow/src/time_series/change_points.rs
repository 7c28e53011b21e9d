// SPDX-License-Identifier: MIT OR Apache-2.0
//! Change points of a series: the pieces between them are straight lines with noise. The method is optimal partitioning
//! (Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005) with the penalty of Schwarz's
//! criterion.
//!
//! A threshold on the rate would need a level in advance; a change point only has to reduce the error by more than its
//! penalty.

use longhaul_stats::sample;

/// Values `from..to` of a series, with the line through them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinearPiece {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Value of the line at the first of them, and at the last.
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) mean: f64,
}

/// Least number of values of a piece: a single one is an outlier.
const LEN_MIN: usize = 2;

/// Returns the pieces with the least sum of squared distances in units of `sigma²`, plus a penalty of 3 ln n for each.
/// A piece has three parameters, its two ends and its beginning (Schwarz, 1978). The time is proportional to n²/2.
/// Fewer than four values are one piece.
pub(crate) fn partition(values: &[f64], sigma: f64) -> Vec<LinearPiece> {
    let line = Lines::of(values);
    let n = values.len();
    if n < 2 * LEN_MIN {
        return (n > 0).then(|| line.fit_piece(0, n)).into_iter().collect();
    }
    let penalty = 3.0 * (n as f64).ln();
    let scale = 1.0 / (sigma * sigma).max(f64::MIN_POSITIVE);
    // Least sum up to each index, and the start of its last piece.
    let mut best = vec![(f64::INFINITY, 0); n + 1];
    best[0] = (0.0, 0);
    for to in LEN_MIN..=n {
        for from in 0..=to - LEN_MIN {
            let sum = best[from].0 + penalty + scale * line.squared_error(from, to);
            if sum < best[to].0 {
                best[to] = (sum, from);
            }
        }
    }
    collect_pieces(&best, &line)
}

fn collect_pieces(best: &[(f64, usize)], line: &Lines) -> Vec<LinearPiece> {
    let mut pieces = Vec::new();
    let mut to = best.len() - 1;
    while to > 0 {
        let from = best[to].1;
        pieces.push(line.fit_piece(from, to));
        to = from;
    }
    pieces.reverse();
    pieces
}

/// Returns the noise of a series, as the standard deviation of a normal distribution. It is derived from the median of
/// second differences, which are zero on a line.
pub(crate) fn noise_sigma(values: &[f64]) -> f64 {
    let seconds = values
        .windows(3)
        .map(|three| (three[0] - 2.0 * three[1] + three[2]).abs());
    median(seconds) * 1.4826 / 6f64.sqrt()
}

/// Replaces each value except the ends by the median of itself and its neighbours: this removes a single outlier but
/// keeps an edge.
pub(crate) fn without_outliers(values: &[f64]) -> Vec<f64> {
    let mut filtered = values.to_vec();
    for (index, three) in values.windows(3).enumerate() {
        filtered[index + 1] = median(three.iter().copied());
    }
    filtered
}

/// Returns the median; 0 without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    sample::median(&sample::sorted(values)).unwrap_or(0.0)
}

/// Running sums from which the line through any stretch is computed.
struct Lines {
    y: Vec<f64>,
    xy: Vec<f64>,
    yy: Vec<f64>,
}

impl Lines {
    fn of(values: &[f64]) -> Self {
        let sums = |of: &dyn Fn(f64, f64) -> f64| {
            let mut sum = 0.0;
            let running = values.iter().enumerate().map(|(x, y)| {
                sum += of(x as f64, *y);
                sum
            });
            std::iter::once(0.0).chain(running).collect()
        };
        Self {
            y: sums(&|_, y| y),
            xy: sums(&|x, y| x * y),
            yy: sums(&|_, y| y * y),
        }
    }

    /// Returns the mean of the values, the slope, and the sum of squared residuals.
    fn fit(&self, from: usize, to: usize) -> (f64, f64, f64) {
        let n = (to - from) as f64;
        let of = |sums: &[f64]| sums[to] - sums[from];
        let (y, middle) = (of(&self.y), (from + to - 1) as f64 / 2.0);
        let mean = y / n;
        let xx = n * (n * n - 1.0) / 12.0;
        let xy = of(&self.xy) - middle * y;
        let slope = if xx > 0.0 { xy / xx } else { 0.0 };
        let squares = of(&self.yy) - n * mean * mean - slope * xy;
        (mean, slope, squares.max(0.0))
    }

    fn squared_error(&self, from: usize, to: usize) -> f64 {
        self.fit(from, to).2
    }

    fn fit_piece(&self, from: usize, to: usize) -> LinearPiece {
        let (mean, slope, _) = self.fit(from, to);
        let half = slope * (to - from - 1) as f64 / 2.0;
        LinearPiece {
            from,
            to,
            start: mean - half,
            end: mean + half,
            mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(values: &[f64], sigma: f64) -> Vec<usize> {
        partition(values, sigma)
            .iter()
            .map(|piece| piece.from)
            .collect()
    }

    /// Returns `value` with uniform noise of ±1, whose standard deviation is 0.58: the top bits of a multiplicative
    /// hash.
    fn noisy(value: f64, n: usize) -> f64 {
        let hash = (n as u32 + 1).wrapping_mul(0x9e37_79b1) ^ (n as u32).wrapping_mul(0x85eb_ca77);
        value + f64::from(hash) / f64::from(1u32 << 31) - 1.0
    }

    #[test]
    fn noisy_line_is_one_piece() {
        let line: Vec<f64> = (0..200).map(|n| noisy(n as f64 / 3.0, n)).collect();
        assert_eq!(places(&line, 0.7), [0]);
        assert!(
            (0.3..0.9).contains(&noise_sigma(&line)),
            "{}",
            noise_sigma(&line)
        );
        let piece = partition(&line, 0.7)[0];
        assert!(piece.start.abs() < 0.5 && (piece.end - 66.3).abs() < 0.5);
    }

    /// The penalty keeps a noisy line whole: at most one in a hundred is cut.
    #[test]
    fn rarely_cuts_noisy_line() {
        let line = |seed: usize| (0..200).map(move |n| noisy(n as f64 / 3.0, n + 1_000 * seed));
        let cut = |seed: &usize| places(&line(*seed).collect::<Vec<f64>>(), 0.58).len() > 1;
        let count = (1..100).filter(cut).count();
        assert!(count <= 1, "{count} of 99");
    }

    #[test]
    fn finds_kink_and_step() {
        let value = |n: usize| match n {
            0..50 => n as f64,
            50..120 => 50.0,
            _ => 30.0,
        };
        let values: Vec<f64> = (0..200).map(|n| noisy(value(n), n)).collect();
        let found = places(&values, 0.7);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].abs_diff(50) <= 2 && found[2] == 120, "{found:?}");
    }

    #[test]
    fn few_values_are_one_piece() {
        assert_eq!(partition(&[], 1.0), []);
        assert_eq!(places(&[1.0, 9.0, 1.0], 0.1), [0]);
        assert_eq!(places(&[5.0; 4], 0.0), [0]);
    }

    #[test]
    fn removes_outlier_and_keeps_edge() {
        let values = [1.0, 1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0];
        let filtered = without_outliers(&values);
        assert_eq!(filtered, [1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]);
    }
}
