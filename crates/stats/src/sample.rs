// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summaries of a sample: mean, median, quantiles. They are `None` for a sample without values.
//!
//! Definitions of quantiles are numbered as by Hyndman and Fan ("Sample quantiles in statistical packages", 1996).

/// The arithmetic mean of `values`.
#[must_use]
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let add = |(count, sum), value| (count + 1u64, sum + value);
    let (count, sum) = values.into_iter().fold((0, 0.0), add);
    (count > 0).then(|| sum / count as f64)
}

/// Returns the finite `values`, in rising order.
#[must_use]
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut finite: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    finite
}

/// The value in the middle of `sorted`, or the mean of the two in the middle.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (below, above, _) = bracket(sorted, 0.5)?;
    Some(below.midpoint(above))
}

/// The value below which a `share` (0 to 1) of `sorted` lies, with linear interpolation: definition 7.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let (below, above, fraction) = bracket(sorted, share)?;
    Some(below + (above - below) * fraction)
}

/// The values on both sides of the quantile of `share`, and its position between them: 0 at the first, 1 at the second.
fn bracket(sorted: &[f64], share: f64) -> Option<(f64, f64, f64)> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let at = |position: f64| sorted[position as usize];
    Some((at(position.floor()), at(position.ceil()), position.fract()))
}

/// The smallest value of `sorted` for which at least a `share` (0 to 1) of all values is not greater: definition 1, the
/// inverse of the distribution function. The result is always an observed value, never a value between two, so it suits
/// counts.
#[must_use]
pub fn quantile_by_rank<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_no_values_is_none() {
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(mean([]), None);
    }

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&sorted([16.2, 15.9, 17.4])), Some(16.2));
        assert_eq!(median(&sorted([4.0, 1.0, 2.0, 3.0])), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quantile_interpolates_between_values() {
        let values = sorted([3.0, 1.0, 2.0, 5.0, 4.0]);
        let at = |share| quantile(&values, share).unwrap();
        assert_eq!((at(0.0), at(0.5), at(1.0), at(0.05)), (1.0, 3.0, 5.0, 1.2));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn quantile_by_rank_is_an_observed_value() {
        let at = |share| quantile_by_rank(&[1, 2, 3, 4, 5], share).unwrap();
        assert_eq!([0.0, 0.1, 0.5, 0.9, 1.0].map(at), [1, 1, 3, 5, 5]);
        assert_eq!(quantile_by_rank(&[1, 2, 3, 4], 0.5), Some(2));
        assert_eq!(quantile_by_rank::<u32>(&[], 0.5), None);
    }

    #[test]
    fn sorted_drops_values_that_are_not_finite() {
        assert_eq!(sorted([f64::NAN, 2.0, f64::INFINITY, -0.5]), [-0.5, 2.0]);
    }
}
