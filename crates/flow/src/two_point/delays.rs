// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences between the times at which two points saw the same packet, and their conversion to delays once the clock
//! offset is known.

use crate::{
    clock_skew::slope_below,
    distribution::Histogram,
    record::{DelayBin, DelaySeries, Distribution},
    time_series::change_points::median,
};

/// Bounds of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComparisonSettings {
    /// Packets after which an unmatched one expires, for each point and direction. It must exceed the number of packets
    /// in flight or within the clock offset. 120 bytes each at worst, when nothing matches.
    pub packets_max: usize,
    /// Most delay samples for the distribution, a direction: 16 bytes each. If there are more, every second one is
    /// dropped.
    pub samples_max: usize,
    /// Most bins of a delay series, a direction, 40 bytes each; if there are more, they become twice as wide.
    pub bins_max: usize,
    /// Initial width of a bin, ns.
    pub width_ns: u64,
}

impl Default for ComparisonSettings {
    /// Returns bounds for 10 Gbit/s and 75 ms: at worst 32 MB, when nothing matches.
    fn default() -> Self {
        Self {
            packets_max: 1 << 16,
            samples_max: 1 << 14,
            bins_max: 1 << 12,
            width_ns: 1_000_000,
        }
    }
}

/// Greatest skew of two clocks, each as far off as crystals are sold (100 ppm).
const SKEW_MAX: f64 = 200e-6;
/// Least error of a capture's timestamps, ns: its thread does not always run.
const STAMP_NOISE_NS: f64 = 10e3;
/// Least ratio of a skew's effect on the least delays to their noise, for the skew to be accepted.
const SIGNIFICANT: f64 = 4.0;
/// Number of parts of the time in which the noise of the least delays is measured.
const NOISE_PARTS: usize = 8;
/// Divisor for the weight of a new difference in the recent one: an eighth, as in a smoothed round trip (RFC 6298 §2).
const RECENT_DIVISOR: i64 = 8;

/// Offset of one clock relative to another, as a line over time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ClockOffset {
    origin_ns: u64,
    offset_ns: f64,
    /// Skew, ns a ns.
    pub(super) slope: f64,
}

/// Least delays of a direction over time, the clock offset included.
pub(super) struct MinDelays {
    from_ns: u64,
    points: Vec<(f64, f64)>,
}

impl ClockOffset {
    /// Returns the offset that makes the least delays of both directions equal; `sign` is that of the offset in the
    /// delays of `low`.
    pub(super) fn from_both_directions(low: &MinDelays, high: &MinDelays, sign: f64) -> Self {
        let slope = sign * common_rate(low.slope(), -high.slope());
        let from_ns = low.from_ns.min(high.from_ns);
        let low = low.intercept(from_ns, sign * slope);
        let high = high.intercept(from_ns, -sign * slope);
        Self {
            origin_ns: from_ns,
            offset_ns: sign * (low - high) / 2.0,
            slope,
        }
    }

    /// Returns the offset that makes the least delay zero.
    pub(super) fn from_one_direction(least: &MinDelays, sign: f64) -> Self {
        let slope = sign * least.slope();
        Self {
            origin_ns: least.from_ns,
            offset_ns: sign * least.intercept(least.from_ns, sign * slope),
            slope,
        }
    }

    pub(super) fn offset_ns_at(&self, at_ns: u64) -> f64 {
        self.offset_ns + self.slope * (at_ns as f64 - self.origin_ns as f64)
    }
}

/// Returns the skew that both directions support: the lesser one, or 0 if they differ in sign. A queue that grows or
/// drains shows in one direction only, a clock in both.
fn common_rate(one: f64, other: f64) -> f64 {
    match one * other > 0.0 {
        true if one.abs() < other.abs() => one,
        true => other,
        false => 0.0,
    }
}

impl MinDelays {
    /// Returns the slope of the least delays, ns a ns; 0 if it is within their noise.
    fn slope(&self) -> f64 {
        let slope = slope_below(&self.points).unwrap_or(0.0);
        let slope = slope.clamp(-SKEW_MAX, SKEW_MAX);
        let moved = slope.abs() * self.duration();
        if moved > SIGNIFICANT * (STAMP_NOISE_NS + self.noise(slope)) {
            slope
        } else {
            0.0
        }
    }

    fn duration(&self) -> f64 {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or(0.0, |(first, last)| last.0 - first.0)
    }

    /// Returns the median, over parts of the time, of the least delay's height above the line of `slope` below all
    /// points.
    fn noise(&self, slope: f64) -> f64 {
        let floor = self.intercept(self.from_ns, slope);
        let above = |(at, delay): &(f64, f64)| delay - slope * at - floor;
        let parts = self
            .points
            .chunks(self.points.len().div_ceil(NOISE_PARTS).max(1));
        median(parts.map(|part| part.iter().map(above).fold(f64::INFINITY, f64::min)))
    }

    /// Returns the value at `from_ns` of the line of this slope below all points.
    fn intercept(&self, from_ns: u64, slope: f64) -> f64 {
        let shift = self.from_ns as f64 - from_ns as f64;
        let above = |(at, delay): &(f64, f64)| delay - slope * (at + shift);
        self.points.iter().map(above).fold(f64::INFINITY, f64::min)
    }
}

/// Time differences (right less left) of the packets of one direction.
#[derive(Debug)]
pub(super) struct Delays {
    settings: ComparisonSettings,
    count: u64,
    recent: i64,
    /// Time by the left clock, and the difference, of one packet in `stride`.
    samples: Vec<(u64, i64)>,
    stride: u64,
    width_ns: u64,
    from_ns: u64,
    bins: Vec<DelaySums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct DelaySums {
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl DelaySums {
    fn of(difference: i64) -> Self {
        Self {
            count: 1,
            sum: i128::from(difference),
            min: difference,
            max: difference,
        }
    }

    fn merge(self, other: Self) -> Self {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self {
                count: self.count + other.count,
                sum: self.sum + other.sum,
                min: self.min.min(other.min),
                max: self.max.max(other.max),
            },
        }
    }
}

impl Delays {
    pub(super) fn new(settings: ComparisonSettings) -> Self {
        Self {
            settings,
            count: 0,
            recent: 0,
            samples: Vec::new(),
            stride: 1,
            width_ns: settings.width_ns.max(1),
            from_ns: 0,
            bins: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, left_ns: u64, right_ns: u64) {
        let difference = right_ns.wrapping_sub(left_ns).cast_signed();
        match self.count {
            0 => (self.recent, self.from_ns) = (difference, left_ns),
            _ => self.recent += difference.saturating_sub(self.recent) / RECENT_DIVISOR,
        }
        self.record_sample(left_ns, difference);
        self.record_in_bin(left_ns, difference);
        self.count += 1;
    }

    fn record_sample(&mut self, at_ns: u64, difference: i64) {
        if !self.count.is_multiple_of(self.stride) {
            return;
        }
        if self.samples.len() >= self.settings.samples_max.max(2) {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
        if self.count.is_multiple_of(self.stride) {
            self.samples.push((at_ns, difference));
        }
    }

    fn record_in_bin(&mut self, at_ns: u64, difference: i64) {
        let elapsed = at_ns.saturating_sub(self.from_ns);
        while elapsed / self.width_ns >= self.settings.bins_max.max(2) as u64 {
            let pairs = self.bins.chunks(2);
            let merged = pairs.map(|pair| {
                pair.iter()
                    .copied()
                    .fold(DelaySums::default(), DelaySums::merge)
            });
            self.bins = merged.collect();
            self.width_ns *= 2;
        }
        let index = (elapsed / self.width_ns) as usize;
        if index >= self.bins.len() {
            self.bins.resize(index + 1, DelaySums::default());
        }
        self.bins[index] = self.bins[index].merge(DelaySums::of(difference));
    }

    /// Returns the usual difference of recent packets.
    pub(super) fn recent_difference(&self) -> Option<i64> {
        (self.count > 0).then_some(self.recent)
    }

    pub(super) fn mean_difference(&self) -> Option<f64> {
        let sum: i128 = self.bins.iter().map(|bin| bin.sum).sum();
        (self.count > 0).then(|| sum as f64 / self.count as f64)
    }

    /// Returns the least delays of packets that reach the left point first, or the right one.
    pub(super) fn min_delays(&self, from_left: bool) -> Option<MinDelays> {
        let point = |(index, bin): (usize, &DelaySums)| {
            let at = (index as f64 + 0.5) * self.width_ns as f64;
            let least = if from_left {
                bin.min as f64
            } else {
                -(bin.max as f64)
            };
            (bin.count > 0).then_some((at, least))
        };
        (self.count > 0).then(|| MinDelays {
            from_ns: self.from_ns,
            points: self.bins.iter().enumerate().filter_map(point).collect(),
        })
    }

    pub(super) fn finish(
        self,
        from_left: bool,
        clock_offset: ClockOffset,
    ) -> (Distribution, DelaySeries) {
        let sign = if from_left { 1.0 } else { -1.0 };
        let delay = |at_ns: u64, difference: f64| {
            let delay = sign * (difference - clock_offset.offset_ns_at(at_ns));
            delay.max(0.0).round() as u64
        };
        let bin = |(index, sums): (usize, &DelaySums)| {
            let width = self.width_ns;
            let into = width.saturating_mul(index as u64).saturating_add(width / 2);
            let middle = self.from_ns.saturating_add(into);
            let of = |difference: f64| delay(middle, difference);
            let (one, other) = (of(sums.min as f64), of(sums.max as f64));
            match sums.count {
                0 => DelayBin::default(),
                count => DelayBin {
                    count,
                    min_ns: one.min(other),
                    mean_ns: of(sums.sum as f64 / count as f64),
                    max_ns: one.max(other),
                },
            }
        };
        let mut histogram = Histogram::default();
        for (at_ns, difference) in &self.samples {
            histogram.record(delay(*at_ns, *difference as f64));
        }
        let series = DelaySeries {
            width_ns: self.width_ns,
            from_ns: self.from_ns,
            bins: self.bins.iter().enumerate().map(bin).collect(),
        };
        (self.scale_counts(&histogram.summary(), &series), series)
    }

    /// Scales the counts from the kept samples to all packets; extremes and mean are of all packets.
    fn scale_counts(&self, sampled: &Distribution, series: &DelaySeries) -> Distribution {
        let full = || series.bins.iter().filter(|bin| bin.count > 0);
        let sum: f64 = full()
            .map(|bin| bin.mean_ns as f64 * bin.count as f64)
            .sum();
        let buckets = sampled.buckets.iter();
        Distribution {
            count: self.count,
            min: full().map(|bin| bin.min_ns).min().unwrap_or(0),
            mean: sum / self.count.max(1) as f64,
            max: full().map(|bin| bin.max_ns).max().unwrap_or(0),
            buckets: buckets
                .map(|(edge, count)| (*edge, count * self.stride))
                .collect(),
            ..sampled.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ComparisonSettings = ComparisonSettings {
        packets_max: 10,
        samples_max: 16,
        bins_max: 8,
        width_ns: 1_000,
    };

    #[test]
    fn bounded_samples_keep_extremes_and_mean() {
        let mut delays = Delays::new(SETTINGS);
        for n in 0..1_000u64 {
            delays.record(n * 1_000, n * 1_000 + 500 + n % 10);
        }
        assert!(delays.samples.len() <= 16 && delays.bins.len() <= 8);
        let (delay, series) = delays.finish(true, ClockOffset::default());
        assert_eq!((delay.count, delay.min, delay.max), (1_000, 500, 509));
        assert!((delay.mean - 504.5).abs() < 1.0, "{}", delay.mean);
        assert_eq!(series.bins.iter().map(|bin| bin.count).sum::<u64>(), 1_000);
    }

    /// One clock, 20 ms each way, and timestamps that are up to 40 µs late.
    fn noisy(packets: u64, every_ns: u64, queue: impl Fn(u64) -> u64) -> ClockOffset {
        let settings = ComparisonSettings {
            bins_max: 4_096,
            samples_max: 4_096,
            ..SETTINGS
        };
        let (mut forward, mut backward) = (Delays::new(settings), Delays::new(settings));
        for n in 0..packets {
            let (at, late) = (n * every_ns, |k: u64| n * k % 97 * 400);
            forward.record(at + late(31), at + 20_000_000 + queue(n) + late(57));
            backward.record(at + 20_000_000 + late(71), at + late(13));
        }
        let (low, high) = (
            forward.min_delays(true).unwrap(),
            backward.min_delays(false).unwrap(),
        );
        ClockOffset::from_both_directions(&low, &high, 1.0)
    }

    #[test]
    fn finds_no_skew_with_one_clock() {
        for packets in [2, 3, 10, 50, 500] {
            let line = noisy(packets, 100_000, |_| 0);
            assert!(line.slope.abs() < 1e-9, "{packets} packets: {line:?}");
        }
    }

    #[test]
    fn growing_queue_is_not_skew() {
        let line = noisy(10_000, 1_000_000, |n| n * 1_000);
        assert!(line.slope.abs() < 1e-9, "{line:?}");
    }

    /// Clocks 3 s and 80 ppm apart, 20 ms each way, and queues.
    #[test]
    fn finds_offset_and_skew_from_least_delays() {
        let settings = ComparisonSettings {
            bins_max: 4_096,
            samples_max: 4_096,
            ..SETTINGS
        };
        let (mut forward, mut backward) = (Delays::new(settings), Delays::new(settings));
        let right = |true_ns: u64| 3_000_000_000 + true_ns + true_ns / 12_500;
        for n in 0..10_000u64 {
            let (at, queue) = (n * 1_000_000, n * 7_919 % 1_000 * 5_000);
            forward.record(at, right(at + 20_000_000 + queue));
            backward.record(at + 20_000_000 + queue / 3, right(at));
        }
        let (low, high) = (
            forward.min_delays(true).unwrap(),
            backward.min_delays(false).unwrap(),
        );
        let line = ClockOffset::from_both_directions(&low, &high, 1.0);
        assert!((line.slope * 1e6 - 80.0).abs() < 2.0, "{line:?}");
        assert!((line.offset_ns_at(0) - 3e9).abs() < 50e3, "{line:?}");
        let (delay, _) = forward.finish(true, line);
        assert!(delay.min.abs_diff(20_000_000) < 50_000, "{}", delay.min);
    }
}
