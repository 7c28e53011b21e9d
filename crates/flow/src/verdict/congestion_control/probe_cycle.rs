// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cycle in which BBR probes for bandwidth.
//!
//! Cardwell et al., "BBR: congestion-based congestion control", ACM Queue 14(5), 2016: the pacing rate is 1.25 and 0.75 of the estimate for a round trip each, and then the estimate for six.

use crate::time_series::rtt_windows::RttWindows;

/// Samples a round trip.
const SAMPLES: f64 = 4.0;
/// Periods of the cycle that are possible, least round trips: the second phase ends when the queue is gone.
const PERIODS: (f64, f64) = (7.0, 10.5);
/// Lags that are no period, least round trips.
const OTHERS: (f64, f64) = (3.0, 5.5);
/// Round trips at the beginning that do not count: BBR's start-up and drain.
const SKIPPED: f64 = 15.0;
/// Round trips over which the mean rate is taken.
const MEAN_RTTS: f64 = 9.0;
/// Least number of round trips with a cycle.
const RTTS_MIN: f64 = 30.0;
/// Least round trip whose cycle bins show, bins.
const RTT_BINS_MIN: f64 = 0.5;
/// Usual standard deviations of the rate, as a part of its mean. Pacing is steadier, and pauses are longer.
const SPREADS: (f64, f64) = (0.06, 0.4);
/// Largest change of the rate that counts, as a part of the mean.
const CHANGE_MAX: f64 = 0.6;

/// Cycle of the sending rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProbeCycle {
    /// Period, least round trips.
    pub(super) period_rtts: f64,
    /// Autocorrelation at the period of the rate's change over a round trip, less the greatest at lags of half of it.
    pub(super) strength: f64,
    /// Standard deviation of the rate, as a part of its mean.
    spread: f64,
}

impl ProbeCycle {
    /// Returns whether the rate changes about as much as in BBR's cycle, of which it is 0.125.
    pub(super) fn has_usual_spread(&self) -> bool {
        (SPREADS.0..SPREADS.1).contains(&self.spread)
    }
}

/// Returns the strongest cycle of the sending rate; `None` if the flow is too short.
pub(super) fn find(rtt_windows: &RttWindows<'_>) -> Option<ProbeCycle> {
    if rtt_windows.path_rtt < RTT_BINS_MIN {
        return None;
    }
    let changes = rate_changes(rtt_windows);
    if (changes.len() as f64) < SAMPLES * RTTS_MIN {
        return None;
    }
    let rtt = SAMPLES as usize;
    let steps: Vec<f64> = changes
        .iter()
        .zip(&changes[rtt..])
        .map(|(one, next)| one - next)
        .collect();
    let variance = covariance(&steps, 0);
    let best = |(from, to): (f64, f64)| {
        let lags = (from * SAMPLES) as usize..=(to * SAMPLES) as usize;
        lags.map(|lag| (lag, covariance(&steps, lag) / variance.max(1e-9)))
            .max_by(|one, other| one.1.total_cmp(&other.1))
    };
    let ((lag, peak), (_, other)) = (best(PERIODS)?, best(OTHERS)?);
    Some(ProbeCycle {
        period_rtts: lag as f64 / SAMPLES,
        strength: peak - other.max(0.0),
        spread: covariance(&changes, 0).sqrt(),
    })
}

/// Returns by which part the rate over each round trip differs from its mean, several times a round trip.
fn rate_changes(rtt_windows: &RttWindows<'_>) -> Vec<f64> {
    let (rtt, active) = (rtt_windows.path_rtt, rtt_windows.active_bins());
    let from = active.start as f64 + (SKIPPED + MEAN_RTTS) * rtt;
    let count = ((active.end as f64 - MEAN_RTTS * rtt - from) * SAMPLES / rtt).max(0.0) as usize;
    let change = |number: usize| {
        let at = from + number as f64 * rtt / SAMPLES;
        let sent = rtt_windows.sent_in(at..at + rtt);
        let around = at - MEAN_RTTS / 2.0 * rtt..at + (MEAN_RTTS / 2.0 + 1.0) * rtt;
        let mean = rtt_windows.sent_in(around) / (MEAN_RTTS + 1.0);
        (sent / mean.max(1.0) - 1.0).clamp(-CHANGE_MAX, CHANGE_MAX)
    };
    (0..count).map(change).collect()
}

fn covariance(values: &[f64], lag: usize) -> f64 {
    let pairs = values.iter().zip(&values[lag.min(values.len())..]);
    let (sum, count) = pairs.fold((0.0, 0.0), |(sum, count), (one, other)| {
        (sum + one * other, count + 1.0)
    });
    sum / f64::max(count, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_series::{TimeSeries, bin::Bin};

    /// Returns the cycle of 200 round trips of ten bins, whose rate in each is `rate`.
    fn cycle(rate: impl Fn(usize) -> u64) -> ProbeCycle {
        let bin = |number: usize| Bin {
            data_bytes: rate(number / 10),
            rtt_min_ns: 40_000_000,
            ..Bin::default()
        };
        let series = TimeSeries {
            width_ns: 4_000_000,
            from_ns: 0,
            bins: (0..2_000).map(bin).collect(),
        };
        find(&RttWindows::of(&series, None).unwrap()).unwrap()
    }

    #[test]
    fn finds_cycle_of_eight_round_trips() {
        let rates = [1_250, 750, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000];
        let found = cycle(|rtt| rates[rtt % 8]);
        assert!((found.period_rtts - 8.0).abs() < 0.3, "{found:?}");
        assert!(
            found.strength > 0.6 && found.has_usual_spread(),
            "{found:?}"
        );
    }

    #[test]
    fn steady_rate_and_other_periods_are_no_cycle() {
        assert!(!cycle(|_| 1_000).has_usual_spread());
        let fourth = cycle(|rtt| if rtt % 4 == 0 { 1_250 } else { 1_000 });
        assert!(fourth.strength < 0.1, "{fourth:?}");
        let sawtooth = cycle(|rtt| 500 + 10 * (rtt as u64 % 50));
        assert!(sawtooth.strength < 0.1, "{sawtooth:?}");
    }
}
