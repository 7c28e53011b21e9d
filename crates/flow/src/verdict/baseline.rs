// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline of the round trip: its least value on the present path, and the noise of that value.
//!
//! Jitter and a longer path lengthen the round trip as a queue does. The least round trip of successive steps differs at
//! random with jitter, and hardly with a queue. And a path that becomes longer does so at once and for good, while the
//! flow becomes no faster. A queue grows when a flow has reached the path's rate. The fastest round trip of each step
//! shows the path. The age of the first byte not acknowledged, which shows queues, depends on the gaps between packets, too.

use crate::time_series::change_points::median;
use longhaul_stats::sample;

/// Steps before and after a change of the path whose round trips must be alike.
const FLAT_STEPS: usize = 8;
/// Number of steps on the longer path that may be even longer. None may lie between: a queue that grows does.
const OUTLIERS: usize = 2;
/// Part of the change by which they may differ.
const FLAT_PART: f64 = 1.0 / 3.0;
/// Part of the steps on the longer path that must show it: a step in which everything was acknowledged does not.
const LASTING_PART: f64 = 0.9;
/// Part of the steps that may be below the least excess of a path that has become longer, for the same reason.
const LEAST_QUANTILE: f64 = 0.1;
/// Factor by which a flow may be faster after its path has become longer.
const FASTER_MAX: f64 = 1.1;
/// Steps in which a queue drains after a loss.
const DRAINING_STEPS: usize = 3;
/// Factor by which a flow is faster if its path became shorter: a queue that drains after a loss makes none faster.
const FASTER_MIN: f64 = 1.25;
/// Least change of the path, as a factor of the noise and in nanoseconds.
const CHANGE_NOISE: f64 = 6.0;
const CHANGE_MIN_NS: f64 = 1e6;
/// Distances of the steps whose round trips are compared: jitter may last some round trips.
const NOISE_LAGS: [usize; 2] = [1, 2];
/// Median distance of a normal variable from the middle of two others, as a factor of the deviation of one.
const MIDDLE_MEDIAN: f64 = 0.826;

/// A step of a flow: how much longer than the flow's least its round trip was, and the bytes acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepDelay {
    /// First bin.
    pub(super) bin: usize,
    /// Excess of the age of the first byte not acknowledged, ns.
    pub(super) excess_ns: f64,
    /// Excess of the fastest round trip, ns; `None` without a sample.
    pub(super) rtt_excess_ns: Option<f64>,
    /// Bytes acknowledged.
    pub(super) acked: f64,
    /// Whether data was lost.
    pub(super) is_lossy: bool,
}

/// Baseline of a flow: that of each path in turn.
#[derive(Debug, Default)]
pub(super) struct Baseline(Vec<PathBaseline>);

/// Baseline from a bin on, until the next path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathBaseline {
    first_bin: usize,
    /// Least excess, ns.
    pub(super) least_ns: f64,
    /// Standard deviation of the least excess of a step, ns.
    pub(super) noise_ns: f64,
}

impl Baseline {
    /// Returns the baseline of a flow by its steps with samples, in order.
    pub(super) fn of(steps: &[StepDelay]) -> Self {
        let sampled = steps.iter().filter(|step| step.rtt_excess_ns.is_some());
        let sampled: Vec<_> = sampled.copied().collect();
        let bins = changes(&sampled, noise_ns(&sampled, rtt_excess_ns))
            .into_iter()
            .map(|change| sampled[change].bin);
        let changes: Vec<_> = bins
            .map(|bin| steps.partition_point(|step| step.bin < bin))
            .collect();
        let ends = changes.iter().copied().chain([steps.len()]);
        let starts = [0].into_iter().chain(changes.iter().copied());
        let paths = starts.zip(ends).filter(|(start, end)| start < end);
        let baseline = |(start, end): (usize, usize)| PathBaseline {
            first_bin: steps[start].bin,
            least_ns: match start {
                0 => least_ns(&steps[..end], 0.0, |step| step.excess_ns),
                // The first step may be of both paths.
                _ => least_ns(&steps[start + 1..end], LEAST_QUANTILE, rtt_excess_ns),
            },
            noise_ns: noise_ns(&steps[start..end], |step| step.excess_ns),
        };
        Self(paths.map(baseline).collect())
    }

    /// Returns the baseline of the path of `bin`.
    pub(super) fn of_bin(&self, bin: usize) -> PathBaseline {
        let after = self.0.partition_point(|path| path.first_bin <= bin);
        let path = self.0.get(after.saturating_sub(1));
        path.copied().unwrap_or_default()
    }
}

/// Returns the excess that a part of the steps is below, ns.
fn least_ns(steps: &[StepDelay], part: f64, excess: fn(&StepDelay) -> f64) -> f64 {
    let excess = sample::sorted(steps.iter().map(excess));
    sample::quantile(&excess, part).unwrap_or(0.0)
}

/// Returns the excess of the fastest round trip, or that of the age.
fn rtt_excess_ns(step: &StepDelay) -> f64 {
    step.rtt_excess_ns.unwrap_or(step.excess_ns)
}

fn noise_ns(steps: &[StepDelay], excess: fn(&StepDelay) -> f64) -> f64 {
    if steps.len() <= FLAT_STEPS {
        return 0.0;
    }
    let deviation = |lag: usize| {
        let from_middle = steps.windows(2 * lag + 1).map(|steps| {
            let middle = f64::midpoint(excess(&steps[0]), excess(&steps[2 * lag]));
            (excess(&steps[lag]) - middle).abs()
        });
        median(from_middle) / MIDDLE_MEDIAN
    };
    NOISE_LAGS.map(deviation).into_iter().fold(0.0, f64::max)
}

/// Returns the first step of each new path.
fn changes(steps: &[StepDelay], noise_ns: f64) -> Vec<usize> {
    let mut changes = Vec::new();
    let mut from = 0;
    let mut step = FLAT_STEPS;
    while step + FLAT_STEPS < steps.len() {
        if step >= from + FLAT_STEPS && is_change(&steps[from..], step - from, noise_ns) {
            changes.push(step);
            from = step;
        }
        step += 1;
    }
    changes
}

/// Returns whether the path changed before `step`; the step itself may be of both paths.
fn is_change(steps: &[StepDelay], step: usize, noise_ns: f64) -> bool {
    let before = &steps[step - FLAT_STEPS..step];
    let after = &steps[step + 1..(step + 1 + FLAT_STEPS).min(steps.len())];
    let excess = |steps: &[StepDelay]| median(steps.iter().map(rtt_excess_ns));
    let change = excess(after) - excess(before);
    let middle = f64::midpoint(excess(after), excess(before));
    let tolerance = (FLAT_PART * change.abs()).max(3.0 * noise_ns);
    let is_large = change.abs() > (CHANGE_NOISE * noise_ns).max(CHANGE_MIN_NS);
    let is_last_before = (rtt_excess_ns(&steps[step]) - excess(before)).abs() > tolerance;
    let (short, long, longer) = if change > 0.0 {
        (before, after, &steps[step + 1..])
    } else {
        (after, before, &steps[..step])
    };
    let above = longer.iter().filter(|step| rtt_excess_ns(step) > middle);
    let lasts = above.count() as f64 >= LASTING_PART * longer.len() as f64;
    let with_change = &steps[step..step + 1 + after.len()];
    // After a loss the window falls, and a queue drains at once, not after a later one. The flow becomes no faster.
    let is_lossy = |steps: &[StepDelay]| steps.iter().any(|step| step.is_lossy);
    let withstands_losses = is_lossy(&before[..FLAT_STEPS - DRAINING_STEPS]);
    let faster = if withstands_losses {
        FASTER_MAX
    } else {
        FASTER_MIN
    };
    let drains = change < 0.0
        && (is_lossy(before) || is_lossy(&after[..1]))
        && rate(with_change) < faster * rate(before);
    is_large
        && !drains
        && is_last_before
        && lasts
        && is_flat(short, tolerance, 0)
        && is_flat(long, tolerance, OUTLIERS)
        && keeps_rate(before, with_change, change)
}

/// Returns whether all steps differ by at most `tolerance` from the median, but for `outliers` above.
fn is_flat(steps: &[StepDelay], tolerance: f64, outliers: usize) -> bool {
    let middle = median(steps.iter().map(rtt_excess_ns));
    let above = steps.iter().map(|step| rtt_excess_ns(step) - middle);
    above.clone().all(|above| above >= -tolerance)
        && above.filter(|above| *above > tolerance).count() <= outliers
}

/// Returns the bytes acknowledged a step.
fn rate(steps: &[StepDelay]) -> f64 {
    steps.iter().map(|step| step.acked).sum::<f64>() / steps.len() as f64
}

/// Returns whether a flow was not faster on the longer of two paths. The step of the change counts with those after it:
/// ACKs that come late are missing in it.
fn keeps_rate(before: &[StepDelay], after: &[StepDelay], change: f64) -> bool {
    let (before, after) = (rate(before), rate(after));
    if change > 0.0 {
        after <= FASTER_MAX * before
    } else {
        before <= FASTER_MAX * after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(excess_ms: impl Fn(usize) -> f64, acked: impl Fn(usize) -> f64) -> Vec<StepDelay> {
        let step = |n| StepDelay {
            bin: 4 * n,
            excess_ns: excess_ms(n) * 1e6,
            rtt_excess_ns: Some(excess_ms(n) * 1e6),
            acked: acked(n),
            is_lossy: false,
        };
        (0..100).map(step).collect()
    }

    #[test]
    fn a_longer_path_is_no_queue() {
        for (low, high) in [(0.0, 18.0), (18.0, 0.0)] {
            let delay = |n| if n < 40 { low } else { high };
            let baseline = Baseline::of(&steps(delay, |_| 1e5));
            assert_eq!(baseline.of_bin(4 * 39).least_ns, low * 1e6);
            assert_eq!(baseline.of_bin(4 * 99).least_ns, high * 1e6);
        }
    }

    /// The rate doubles until the queue stands.
    #[test]
    fn a_queue_is_no_longer_path() {
        let delay = |n| if n < 12 { 0.0 } else { 18.0 };
        let rate = |n: usize| 1e4 * 2f64.powi(n.min(12) as i32);
        assert_eq!(
            Baseline::of(&steps(delay, rate)).of_bin(4 * 50).least_ns,
            0.0
        );
        let saw_tooth = |n| 5.0 + (n % 20) as f64;
        let baseline = Baseline::of(&steps(saw_tooth, |_| 1e5));
        assert_eq!(baseline.of_bin(0).least_ns, 5e6);
        assert_eq!(baseline.0.len(), 1);
        let passing = |n| if (40..70).contains(&n) { 18.0 } else { 0.0 };
        let baseline = Baseline::of(&steps(passing, |_| 1e5));
        assert_eq!(
            baseline.of_bin(4 * 50).least_ns,
            0.0,
            "another flow's queue"
        );
    }

    #[test]
    fn jitter_is_noise_and_a_queue_is_not() {
        let jitter = |n: usize| [3.0, 7.0, 0.0, 5.0, 9.0, 2.0][n * 5 % 6];
        let noise = Baseline::of(&steps(jitter, |_| 1e5)).of_bin(0).noise_ns;
        assert!(noise > 2e6, "{noise}");
        let growing = |n| (n % 50) as f64;
        let noise = Baseline::of(&steps(growing, |_| 1e5)).of_bin(0).noise_ns;
        assert!(noise < 1.1e6, "{noise}");
        assert!(Baseline::of(&[]).0.is_empty());
    }

    /// Wi-Fi delays last some round trips.
    #[test]
    fn slow_jitter_is_noise() {
        let slow = |n: usize| 3.0 + 2.5 * (n as f64 * std::f64::consts::TAU / 8.0).sin();
        let noise_ns = Baseline::of(&steps(slow, |_| 1e5)).of_bin(0).noise_ns;
        assert!(4.0 * noise_ns > 5.5e6, "{noise_ns}");
    }

    /// A capture that begins behind a full queue, which a loss drains.
    #[test]
    fn queue_that_drains_after_a_loss_is_no_shorter_path() {
        let delay = |n| if n < 40 { 80.0 } else { 56.0 };
        let mut drained = steps(delay, |_| 1e5);
        assert_eq!(Baseline::of(&drained).0.len(), 2);
        drained[39].is_lossy = true;
        let baseline = Baseline::of(&drained);
        assert_eq!((baseline.0.len(), baseline.of_bin(0).least_ns), (1, 56e6));
    }

    #[test]
    fn queue_that_losses_do_not_drain_is_a_longer_path() {
        let rate = |n| if n < 40 { 1e5 } else { 1.2e5 };
        let mut lossy = steps(|n| if n < 40 { 80.0 } else { 56.0 }, rate);
        (lossy[34].is_lossy, lossy[39].is_lossy) = (true, true);
        let baseline = Baseline::of(&lossy);
        assert_eq!((baseline.0.len(), baseline.of_bin(0).least_ns), (2, 80e6));
    }

    /// A window that losses keep small is faster on a shorter path.
    #[test]
    fn path_that_becomes_shorter_makes_a_lossy_flow_faster() {
        let delay = |n| if n < 40 { 50.0 } else { 0.0 };
        let mut faster = steps(delay, |n| if n < 40 { 1e5 } else { 2.5e5 });
        faster[39].is_lossy = true;
        let baseline = Baseline::of(&faster);
        assert_eq!((baseline.0.len(), baseline.of_bin(0).least_ns), (2, 50e6));
    }
}
