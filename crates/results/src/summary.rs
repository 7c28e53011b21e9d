// SPDX-License-Identifier: MIT OR Apache-2.0
//! What repeated runs of one cell say together.

use serde::{Deserialize, Serialize};

/// Median and range of one metric over the runs of a cell, in the metric's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// Of `values` in any order. `None` if none of them is finite; others are left out, since a
    /// run that gave no figure must not move the median.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            median: median_of_sorted(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// The value below which `share` of `values` (in any order) are, on straight lines between them (Hyndman
/// and Fan's definition 7). `None` of no finite value.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values.iter().copied());
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    Some(below + (above - below) * place.fract())
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut finite: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    finite
}

/// The middle value, or the mean of the two in the middle.
fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some(sorted[sorted.len() / 2 - 1].midpoint(upper)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_count_takes_the_middle() {
        let summary = Summary::of([16.2, 15.9, 17.4]).unwrap();
        assert_eq!(
            (summary.min, summary.median, summary.max),
            (15.9, 16.2, 17.4)
        );
    }

    #[test]
    fn even_count_takes_the_mean_of_the_middle_two() {
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn quantiles_lie_between_values() {
        let values = [3.0, 1.0, 2.0, 5.0, 4.0];
        let at = |share| quantile(&values, share).unwrap();
        assert_eq!((at(0.0), at(0.5), at(1.0), at(0.05)), (1.0, 3.0, 5.0, 1.2));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn runs_without_a_figure_do_not_count() {
        assert_eq!(
            Summary::of([f64::NAN, 2.0, f64::INFINITY]).unwrap().median,
            2.0
        );
        assert_eq!(Summary::of([f64::NAN]), None);
        assert_eq!(Summary::of([]), None);
    }
}
