// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round steps, for bins and axes.

/// Returns the smallest number, 1, 2 or 5 times a power of ten, that is not below `step`. `step` must be above zero.
pub fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    round
        .into_iter()
        .find(|x| *x >= step * (1.0 - 1e-9))
        .unwrap_or(round[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_steps_to_1_2_5_times_power_of_ten() {
        assert_eq!(
            [0.1, 0.11, 0.3, 0.7, 1.0, 3.0, 6.0, 1000.0, 1001.0].map(round_step),
            [0.1, 0.2, 0.5, 1.0, 1.0, 5.0, 10.0, 1000.0, 2000.0]
        );
    }
}
