// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long ACKs travel, from one tap: their TSval (RFC 7323 §3) says when they left.
//!
//! The receiver's clock has an offset that nobody knows, so only differences mean anything: what an
//! ACK takes longer than the fastest of its flow. It tells a queue of ACKs from one of data, which
//! a round trip does not.

use crate::clock_skew::slope_below;
use crate::segment::Segment;
use crate::time_series::bin::Bin;

/// Clocks of hosts differ by no more than this in rate (RFC 5905 §7.1 takes 15 ppm, crystals are
/// sold with 100).
const SKEW_MAX: f64 = 100e-6;
/// A clock that is so far off does not tick in milliseconds.
const NO_MILLISECONDS: f64 = 0.2;

/// One direction's ACKs.
#[derive(Debug, Clone, Copy, Default)]
pub struct AckPathDelay {
    first: Option<(u64, u32)>,
}

impl AckPathDelay {
    /// Puts into `bin` what an ACK took longer (or, below zero, less long) than the first did, in ns,
    /// if the receiver's time stamps count milliseconds, as those of Linux, FreeBSD, macOS and Windows
    /// do. The least of a bin stays.
    #[inline]
    pub fn record(&mut self, ack: &Segment, bin: &mut Bin) {
        if ack.has_timestamps {
            let delay_ns = self.delay_ns(ack.at_ns, ack.tsval);
            bin.ack_path_delay_ns = Some(
                bin.ack_path_delay_ns
                    .map_or(delay_ns, |least| least.min(delay_ns)),
            );
        }
    }

    fn delay_ns(&mut self, at_ns: u64, tsval: u32) -> i64 {
        let (first_ns, first_tsval) = *self.first.get_or_insert((at_ns, tsval));
        let elapsed = at_ns.wrapping_sub(first_ns) as i64;
        let ticks = i64::from(tsval.wrapping_sub(first_tsval) as i32);
        elapsed.saturating_sub(ticks * 1_000_000)
    }
}

/// What the ACKs of each bin took longer than the fastest, in ns, with the clocks' difference in rate
/// taken out: the line below all points that is nearest to them (Moon, Skelly and Towsley,
/// "Estimation and removal of clock skew from network delay measurements", 1999), as far as a clock
/// may be off. None without time stamps that count milliseconds.
pub(crate) fn excess_ns(bins: &[Bin], width_ns: u64) -> Option<Vec<Option<f64>>> {
    let point = |(at, bin): (usize, &Bin)| {
        let way = bin.ack_path_delay_ns? as f64;
        Some((at as f64 * width_ns as f64, way))
    };
    let points: Vec<(f64, f64)> = bins.iter().enumerate().filter_map(point).collect();
    let slope = skew(&points)?;
    let above = |(at, way): (f64, f64)| way - slope * at;
    let least = points
        .iter()
        .copied()
        .map(above)
        .fold(f64::INFINITY, f64::min);
    let excess = |item| point(item).map(|point| above(point) - least);
    Some(bins.iter().enumerate().map(excess).collect())
}

fn skew(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let (time, way) = (last.0 - first.0, last.1 - first.1);
    if time <= 0.0 || (way / time).abs() > NO_MILLISECONDS {
        return (time <= 0.0).then_some(0.0);
    }
    let slope = slope_below(points)?;
    Some(slope.clamp(-SKEW_MAX, SKEW_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(way_us: impl Fn(usize) -> i64) -> Vec<Bin> {
        let bin = |n| Bin {
            ack_path_delay_ns: Some(way_us(n) * 1_000),
            ..Bin::default()
        };
        (0..1_000).map(bin).collect()
    }

    #[test]
    fn a_tsval_that_wraps_is_later() {
        let mut path_delay = AckPathDelay::default();
        assert_eq!(path_delay.delay_ns(5_000_000_000, u32::MAX), 0);
        assert_eq!(path_delay.delay_ns(5_012_500_000, 9), 2_500_000);
        assert_eq!(path_delay.delay_ns(5_010_000_000, 9), 0);
    }

    /// 10 ms a bin, 50 ppm: half a millisecond after ten seconds.
    #[test]
    fn a_clock_that_runs_slow_is_no_queue() {
        let drift = bins(|n| n as i64 / 2 + [0, 900, 400][n % 3]);
        let excess = excess_ns(&drift, 10_000_000).unwrap();
        assert!(excess.iter().flatten().all(|e| *e < 1_000_000.0));
    }

    #[test]
    fn a_queue_of_acks_is_no_slow_clock() {
        let queue = bins(|n| if n < 100 { 0 } else { 80_000 });
        let excess = excess_ns(&queue, 10_000_000).unwrap();
        assert!(excess[500].unwrap() > 70e6);
        assert!(excess[50].unwrap() < 1e6);
    }

    #[test]
    fn other_ticks_are_left_alone() {
        let tens = bins(|n| n as i64 * 9_000);
        assert_eq!(excess_ns(&tens, 10_000_000), None);
        assert_eq!(excess_ns(&[Bin::default()], 1), None);
    }
}
