// SPDX-License-Identifier: MIT OR Apache-2.0
//! Max-min fair level that yields a given sum.

/// Returns the level L with Σ min(dᵢ, L) = `target`. L is infinite if the sum of all demands is at most `target`. Sorts
/// the demands, which must not be NaN.
///
/// This is water-filling (max-min fairness): L is never below `target`/n.
#[must_use]
pub fn level(demands: &mut [f64], target: f64) -> f64 {
    demands.sort_unstable_by(f64::total_cmp);
    let mut remaining = target;
    let count = demands.len();
    for (at, demand) in demands.iter().enumerate() {
        let share = remaining / (count - at) as f64;
        if *demand > share {
            return share;
        }
        remaining -= demand;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slow_flows_keep_their_rate_and_fast_flows_share_the_remainder() {
        assert_eq!(level(&mut [1.0, 8.0, 3.0, 9.0], 14.0), 5.0);
        assert_eq!(level(&mut [f64::INFINITY; 4], 8.0), 2.0);
        assert_eq!(level(&mut [1.0, 2.0], 3.0), f64::INFINITY);
        assert_eq!(level(&mut [], 3.0), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn meets_target_and_never_falls_below_equal_share(
            demands in prop::collection::vec(0.0..1e9f64, 1..64),
            target in 1.0..1e10f64,
        ) {
            let found = level(&mut demands.clone(), target);
            let sum: f64 = demands.iter().map(|demand| demand.min(found)).sum();
            if found.is_finite() {
                prop_assert!((sum / target - 1.0).abs() < 1e-9);
                prop_assert!(found >= target / demands.len() as f64 * (1.0 - 1e-12));
            } else {
                prop_assert!(sum <= target * (1.0 + 1e-12));
            }
        }
    }
}
