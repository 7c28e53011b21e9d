// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fairness: how evenly flows share a path.

/// Jain's fairness index, (Σx)² / (n Σx²): 1 if all rates are equal, 1/n if one of n flows has all (RFC 5166 §2.3.1).
/// `None` if there are fewer than two rates, or all of them are 0: there is nothing to compare.
#[must_use]
pub fn jain(rates: &[f64]) -> Option<f64> {
    let squares: f64 = rates.iter().map(|x| x * x).sum();
    let index = rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares);
    (rates.len() > 1 && index.is_finite()).then_some(index)
}

/// Slowest rate over the fastest. `None` in the cases of [`jain`].
#[must_use]
pub fn slowest(rates: &[f64]) -> Option<f64> {
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    let ratio = rates.iter().copied().fold(fastest, f64::min) / fastest;
    (rates.len() > 1 && ratio.is_finite()).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equal_rates_and_one_over_n_for_a_single_sender() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert!((jain(&[3.0, 1.0]).unwrap() - 0.8).abs() < 1e-12);
    }

    #[test]
    fn jain_is_none_for_fewer_than_two_flows_and_for_idle_flows() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[5.0]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn slowest_is_a_share_of_the_fastest() {
        assert_eq!(slowest(&[4.0, 1.0, 2.0]), Some(0.25));
        assert_eq!((slowest(&[5.0]), slowest(&[0.0, 0.0])), (None, None));
    }
}
