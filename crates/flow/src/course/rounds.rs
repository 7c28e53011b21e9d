// SPDX-License-Identifier: MIT OR Apache-2.0
//! A course looked at in round trips. A window leaves once a round trip and often in one burst, so
//! that a rate over less than a round trip says how bursts fall, not how fast the flow is.

use super::{Course, series::Bin};
use std::{collections::VecDeque, ops::Range};

/// Steps of the whole course at most: what takes less than 0.4 % of it is not told apart.
const STEPS_MAX: f64 = 256.0;
/// Bins of a step at least, so that a burst which falls on a bin's edge matters little.
const BINS_MIN: f64 = 4.0;

/// A course and its measure. Points in time are in bins, with fractions.
pub(crate) struct Rounds<'a> {
    course: &'a Course,
    /// The least round trip between tap and receiver and back.
    pub(crate) least: f64,
    /// The least round trip of all, sender to receiver and back, as far as it is known.
    pub(crate) rtt: f64,
    /// What rates are taken over: whole round trips, for as long as [`STEPS_MAX`] asks.
    pub(crate) step: f64,
    /// Bytes sent before each bin, and acknowledged.
    sent: Vec<u64>,
    acked: Vec<u64>,
}

impl<'a> Rounds<'a> {
    /// `None` if no data was sent. `handshake_ns` is the round trip of the handshake, if it was seen:
    /// near the receiver there is no other.
    pub(crate) fn of(course: &'a Course, handshake_ns: Option<u64>) -> Option<Self> {
        let active = active(course)?;
        let width = course.width_ns.max(1) as f64;
        let least = samples(&course.bins).map(|bin| bin.rtt_min_ns).min();
        let least = least.map_or(1.0, |rtt| rtt as f64 / width).max(1e-3);
        let rtt = handshake_ns.map_or(least, |rtt| least.max(rtt as f64 / width));
        let wanted = BINS_MIN.max(active.len() as f64 / STEPS_MAX);
        Some(Self {
            course,
            least,
            rtt,
            step: rtt * (wanted / rtt).ceil(),
            sent: sums(&course.bins, |bin| bin.data_bytes),
            acked: sums(&course.bins, |bin| bin.acked_bytes),
        })
    }

    pub(crate) fn bins(&self) -> &'a [Bin] {
        &self.course.bins
    }

    /// From the first bin with data to past the last.
    pub(crate) fn active(&self) -> Range<usize> {
        active(self.course).unwrap_or_default()
    }

    /// Bytes sent in `range`, as if each bin's were spread over it.
    pub(crate) fn sent_in(&self, range: Range<f64>) -> f64 {
        at(&self.sent, range.end) - at(&self.sent, range.start)
    }

    /// Bytes acknowledged in `range`.
    pub(crate) fn acked_in(&self, range: Range<f64>) -> f64 {
        at(&self.acked, range.end) - at(&self.acked, range.start)
    }

    /// The least round trip of each bin and those before it within `span` bins: what a queue that
    /// stands adds shows in it, what a burst adds does not. Carried on where there is no sample.
    pub(crate) fn standing_rtt_ns(&self, span: f64) -> Vec<u64> {
        let span = span.ceil().max(1.0) as usize;
        let mut last = 0;
        // Samples of the window that no later one is below, so that the first is the least.
        let mut least: VecDeque<(usize, u64)> = VecDeque::new();
        let standing = self.bins().iter().enumerate().map(|(at, bin)| {
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
        standing.collect()
    }

    /// `bin` as ns since 1970.
    pub(crate) fn time(&self, bin: usize) -> u64 {
        self.course.time_of(bin)
    }

    /// ns of `bins` bins.
    pub(crate) fn nanos(&self, bins: f64) -> f64 {
        bins * self.course.width_ns as f64
    }
}

fn samples(bins: &[Bin]) -> impl Iterator<Item = &Bin> {
    bins.iter().filter(|bin| bin.rtt_min_ns > 0)
}

fn active(course: &Course) -> Option<Range<usize>> {
    let first = course.bins.iter().position(|bin| bin.data_bytes > 0)?;
    let last = course.bins.iter().rposition(|bin| bin.data_bytes > 0)?;
    Some(first..last + 1)
}

fn sums(bins: &[Bin], of: fn(&Bin) -> u64) -> Vec<u64> {
    let running = bins.iter().scan(0u64, |sum, bin| {
        *sum = sum.saturating_add(of(bin));
        Some(*sum)
    });
    std::iter::once(0).chain(running).collect()
}

fn at(sums: &[u64], point: f64) -> f64 {
    let last = sums.len() - 1;
    let place = point.clamp(0.0, last as f64);
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let (low, high, part) = (sums[low] as f64, sums[high] as f64, place.fract());
    low + (high - low) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rtts: &[u64]) -> Course {
        let bin = |rtt_min_ns: &u64| Bin {
            data_bytes: 1,
            rtt_min_ns: *rtt_min_ns,
            ..Bin::default()
        };
        Course {
            width_ns: 1,
            from_ns: 0,
            bins: rtts.iter().map(bin).collect(),
        }
    }

    #[test]
    fn a_standing_round_trip_is_the_least_of_a_window() {
        let course = course(&[0, 5, 9, 7, 8, 0, 0, 0, 6, 9]);
        let rounds = Rounds::of(&course, None).unwrap();
        assert_eq!(rounds.standing_rtt_ns(3.0), [0, 5, 5, 5, 7, 7, 8, 8, 6, 6]);
        assert_eq!(rounds.standing_rtt_ns(1.0), [0, 5, 9, 7, 8, 8, 8, 8, 6, 9]);
    }

    #[test]
    fn bytes_are_spread_over_their_bins_and_steps_are_whole_round_trips() {
        let course = course(&[3; 2_000]);
        let rounds = Rounds::of(&course, None).unwrap();
        assert!((rounds.sent_in(0.25..2.75) - 2.5).abs() < 1e-9);
        assert_eq!((rounds.rtt, rounds.step), (3.0, 9.0));
        let near_receiver = Rounds::of(&course, Some(40)).unwrap();
        assert_eq!((near_receiver.least, near_receiver.step), (3.0, 40.0));
    }
}
