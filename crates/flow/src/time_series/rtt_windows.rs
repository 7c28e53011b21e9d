// SPDX-License-Identifier: MIT OR Apache-2.0
//! A time series viewed in windows of whole round trips. A sender transmits a window once a round trip, often in one
//! burst, so a rate over less than a round trip shows the position of bursts, not the flow's rate.

use super::{TimeSeries, bin::Bin};
use std::{collections::VecDeque, ops::Range};

/// Most steps of the whole series: periods below 0.4 % of it are not distinguished.
const STEPS_MAX: f64 = 256.0;
/// Least number of bins of a step, so that a burst on the edge of a bin matters little.
const BINS_MIN: f64 = 4.0;

/// A time series with its round trip and step. Times are in bins, with fractions.
pub(crate) struct RttWindows<'a> {
    series: &'a TimeSeries,
    /// Least round trip between the capture point and the receiver, bins.
    pub(crate) tap_rtt: f64,
    /// Least round trip between the capture point and the sender, by the ACKs that data echoes, bins; 0 if unknown.
    pub(crate) sender_rtt: f64,
    /// Least round trip between sender and receiver, as far as it is known, bins.
    pub(crate) path_rtt: f64,
    /// Step over which rates are taken, bins: whole round trips, as many as [`STEPS_MAX`] requires.
    pub(crate) step: f64,
    /// Bytes sent before each bin, and bytes acknowledged before each bin.
    sent: Vec<u64>,
    acked: Vec<u64>,
}

impl<'a> RttWindows<'a> {
    /// Creates the view; `None` if no data was sent. `handshake_ns` is the round trip of the handshake, if it was seen:
    /// near the receiver no other shows the whole path.
    pub(crate) fn of(series: &'a TimeSeries, handshake_ns: Option<u64>) -> Option<Self> {
        let active = find_active_bins(series)?;
        let width = series.width_ns.max(1) as f64;
        let tap_rtt = bins_with_rtt(&series.bins).map(|bin| bin.rtt_min_ns).min();
        let least = tap_rtt.map_or(1.0, |rtt| rtt as f64 / width).max(1e-3);
        let sender_rtt = least_sender_rtt_ns(&series.bins).map_or(0.0, |rtt| rtt / width);
        let path_rtt = handshake_ns.map_or(least + sender_rtt, |rtt| least.max(rtt as f64 / width));
        let step_min = BINS_MIN.max(active.len() as f64 / STEPS_MAX);
        Some(Self {
            series,
            tap_rtt: least,
            sender_rtt,
            path_rtt,
            step: path_rtt * (step_min / path_rtt).ceil(),
            sent: running_sums(&series.bins, |bin| bin.data_bytes),
            acked: running_sums(&series.bins, |bin| bin.acked_bytes),
        })
    }

    pub(crate) fn bins(&self) -> &'a [Bin] {
        &self.series.bins
    }

    /// Returns the bins from the first with data to the last, or to the end of a stall in a window of zero behind it.
    pub(crate) fn active_bins(&self) -> Range<usize> {
        find_active_bins(self.series).unwrap_or_default()
    }

    /// Returns the steps of the active bins, in order; a shorter last one is left out.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Range<usize>> {
        let (active, step) = (self.active_bins(), self.step);
        let edge = move |number: usize| active.start + (number as f64 * step).round() as usize;
        let count = (self.active_bins().len() as f64 / step) as usize;
        (0..count).map(move |number| edge(number)..edge(number + 1))
    }

    /// Returns the bytes sent in `range`, as if those of each bin were spread evenly over it.
    pub(crate) fn sent_in(&self, range: Range<f64>) -> f64 {
        interpolate(&self.sent, range.end) - interpolate(&self.sent, range.start)
    }

    /// Returns the bytes acknowledged in `range`.
    pub(crate) fn acked_in(&self, range: Range<f64>) -> f64 {
        interpolate(&self.acked, range.end) - interpolate(&self.acked, range.start)
    }

    /// Returns for each bin the least round trip of it and the bins before it, within `span` bins. It includes the
    /// delay of a standing queue, but not that of a burst. Bins without samples repeat the last value.
    pub(crate) fn windowed_min_rtt_ns(&self, span: f64) -> Vec<u64> {
        let span = span.ceil().max(1.0) as usize;
        let mut last = 0;
        // Samples of the window with no later sample below them, so that the first is the least.
        let mut least: VecDeque<(usize, u64)> = VecDeque::new();
        let min_rtts = self.bins().iter().enumerate().map(|(at, bin)| {
            if bin.rtt_min_ns > 0 {
                while least.back().is_some_and(|(_, rtt)| *rtt >= bin.rtt_min_ns) {
                    least.pop_back();
                }
                least.push_back((at, bin.rtt_min_ns));
            }
            while least
                .front()
                .is_some_and(|(from, _)| from.saturating_add(span) <= at)
            {
                least.pop_front();
            }
            last = least.front().map_or(last, |(_, rtt)| *rtt);
            last
        });
        min_rtts.collect()
    }

    /// Returns the start of `bin`, ns since 1970.
    pub(crate) fn bin_start_ns(&self, bin: usize) -> u64 {
        self.series.bin_start_ns(bin)
    }

    /// Converts bins to ns.
    pub(crate) fn bins_to_ns(&self, bins: f64) -> f64 {
        bins * self.series.width_ns as f64
    }
}

fn bins_with_rtt(bins: &[Bin]) -> impl Iterator<Item = &Bin> {
    bins.iter().filter(|bin| bin.rtt_min_ns > 0)
}

fn least_sender_rtt_ns(bins: &[Bin]) -> Option<f64> {
    let rtts = bins.iter().map(|bin| bin.sender.rtt_min_us);
    let least = rtts.filter(|rtt| *rtt > 0).min()?;
    Some(f64::from(least) * 1e3)
}

fn find_active_bins(series: &TimeSeries) -> Option<Range<usize>> {
    let first = series.bins.iter().position(|bin| bin.data_bytes > 0)?;
    // A sender asks again and again for ACKs of a window of zero, as long as it has data.
    let is_active = |bin: &Bin| bin.data_bytes > 0 || bin.acks > 0 && bin.window_min == Some(0);
    let last = series.bins.iter().rposition(is_active)?;
    Some(first..last + 1)
}

fn running_sums(bins: &[Bin], of: fn(&Bin) -> u64) -> Vec<u64> {
    let running = bins.iter().scan(0u64, |sum, bin| {
        *sum = sum.saturating_add(of(bin));
        Some(*sum)
    });
    std::iter::once(0).chain(running).collect()
}

fn interpolate(sums: &[u64], point: f64) -> f64 {
    let last = sums.len() - 1;
    let position = point.clamp(0.0, last as f64);
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let (low, high, part) = (sums[low] as f64, sums[high] as f64, position.fract());
    low + (high - low) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rtts: &[u64]) -> TimeSeries {
        let bin = |rtt_min_ns: &u64| Bin {
            data_bytes: 1,
            rtt_min_ns: *rtt_min_ns,
            ..Bin::default()
        };
        TimeSeries {
            width_ns: 1,
            from_ns: 0,
            bins: rtts.iter().map(bin).collect(),
        }
    }

    #[test]
    fn returns_least_round_trip_of_window() {
        let series = series(&[0, 5, 9, 7, 8, 0, 0, 0, 6, 9]);
        let windows = RttWindows::of(&series, None).unwrap();
        assert_eq!(
            windows.windowed_min_rtt_ns(3.0),
            [0, 5, 5, 5, 7, 7, 8, 8, 6, 6]
        );
        assert_eq!(
            windows.windowed_min_rtt_ns(1.0),
            [0, 5, 9, 7, 8, 8, 8, 8, 6, 9]
        );
    }

    #[test]
    fn interpolates_bytes_and_rounds_step_to_round_trips() {
        let series = series(&[3; 2_000]);
        let windows = RttWindows::of(&series, None).unwrap();
        assert!((windows.sent_in(0.25..2.75) - 2.5).abs() < 1e-9);
        assert_eq!((windows.path_rtt, windows.step), (3.0, 9.0));
        let near_receiver = RttWindows::of(&series, Some(40)).unwrap();
        assert_eq!((near_receiver.tap_rtt, near_receiver.step), (3.0, 40.0));
    }
}
