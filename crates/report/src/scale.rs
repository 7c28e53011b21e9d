// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scale of an axis: positions of values as shares of the axis, and round values for its labels.

/// Maximum number of intervals between labels on a linear axis.
const TICKS_MAX: f64 = 6.0;
/// Maximum number of labelled decades on a logarithmic axis.
const DECADES_MAX: i32 = 6;

/// Range of an axis, as logarithms if `log` is set. `high` is always above `low`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// Creates a linear scale from zero to slightly above the largest of `values`.
    pub fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values
            .into_iter()
            .filter(|x| x.is_finite())
            .fold(0.0, f64::max);
        Self::with_range(0.0, most * 1.06, false)
    }

    /// Creates a linear scale from the least to the greatest of `values`.
    pub fn tight(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        Self::with_range(low, high, false)
    }

    /// Creates a logarithmic scale from the least to the greatest of the positive `values`. Other values have no
    /// position on it.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values.into_iter().filter(|x| *x > 0.0));
        Self::with_range(low.log10(), high.log10(), true)
    }

    fn with_range(low: f64, high: f64, log: bool) -> Self {
        let (low, high) = if low.is_finite() && high.is_finite() {
            (low, high)
        } else {
            (0.0, 1.0)
        };
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            log,
        }
    }

    /// Returns the position of `value`: 0 to 1 within the range.
    pub fn at(&self, value: f64) -> f64 {
        let position = if self.log { value.log10() } else { value };
        (position - self.low) / (self.high - self.low)
    }

    /// Returns a few round values within the range.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            self.log_ticks()
        } else {
            self.linear_ticks()
        }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = round_step((self.high - self.low) / TICKS_MAX);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let first = (self.low - 1e-9).ceil() as i32;
        let last = (self.high + 1e-9).floor() as i32;
        let step = ((last - first) / DECADES_MAX + 1).max(1) as usize;
        (first..=last)
            .step_by(step)
            .map(|n| 10f64.powi(n))
            .collect()
    }
}

/// Returns the smallest number, 1, 2 or 5 times a power of ten, that is not below `step`. `step` must be above zero.
pub fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    round
        .into_iter()
        .find(|x| *x >= step * (1.0 - 1e-9))
        .unwrap_or(round[3])
}

fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let wider = |(low, high): (f64, f64), x: f64| (low.min(x), high.max(x));
    let finite = values.into_iter().filter(|x| x.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), wider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_linear_axis_with_round_values() {
        assert_eq!(
            Scale::from_zero([3.0, 94.0]).ticks(),
            [0.0, 20.0, 40.0, 60.0, 80.0]
        );
        assert_eq!(Scale::tight([1.0, 5.0]).ticks(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn rounds_steps_to_1_2_5_times_power_of_ten() {
        assert_eq!(
            [0.1, 0.11, 0.3, 0.7, 1.0, 3.0, 6.0, 1000.0, 1001.0].map(round_step),
            [0.1, 0.2, 0.5, 1.0, 1.0, 5.0, 10.0, 1000.0, 2000.0]
        );
    }

    #[test]
    fn labels_logarithmic_axis_with_decades() {
        let scale = Scale::log([0.0, 1e-5, 1e-3]);
        assert_eq!(scale.ticks().len(), 3);
        assert!((scale.at(1e-4) - 0.5).abs() < 1e-9);
        assert!(Scale::log([1e-12, 1e12]).ticks().len() <= 7);
    }

    #[test]
    fn accepts_one_value_or_none() {
        for scale in [
            Scale::tight([2.0]),
            Scale::tight([]),
            Scale::log([0.0]),
            Scale::from_zero([0.0]),
        ] {
            assert!(scale.at(2.0).is_finite(), "{scale:?}");
            assert!(!scale.ticks().is_empty(), "{scale:?}");
        }
    }
}
