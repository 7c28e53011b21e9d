// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delay variation of the ACK path, measured at one capture point: the TSval of an ACK (RFC 7323 §3) gives the time
//! when it left.
//!
//! The offset of the receiver's clock is unknown, so only differences are valid: the delay of an ACK above that of the
//! fastest ACK of its flow. They separate a queue of ACKs from a queue of data; a round trip does not.

use crate::clock_skew::slope_below;
use crate::segment::Segment;
use crate::time_series::bin::Bin;

/// Greatest difference in rate between the clocks of two hosts (RFC 5905 §7.1 assumes 15 ppm; crystals are sold with
/// 100 ppm).
const SKEW_MAX: f64 = 100e-6;
/// Clock error above which the timestamps do not count milliseconds.
const NO_MILLISECONDS: f64 = 0.2;

/// Time reference for the ACKs of one direction: the first one.
#[derive(Debug, Clone, Copy, Default)]
pub struct AckPathDelay {
    first: Option<(u64, u32)>,
}

impl AckPathDelay {
    /// Stores in `bin` the delay of an ACK relative to the first ACK, ns; below zero if it was faster. Requires time
    /// stamps that count milliseconds, as those of Linux, FreeBSD, macOS and Windows do. The bin keeps the least delay.
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

/// Returns the ACK delay of each bin above that of the fastest ACK, ns. The difference in rate of the clocks is removed,
/// as far as a clock may be off: it is the slope of the nearest line below all points (`clock_skew.rs`). `None` without
/// timestamps that count milliseconds.
pub(crate) fn excess_ns(bins: &[Bin], width_ns: u64) -> Option<Vec<Option<f64>>> {
    let point = |(at, bin): (usize, &Bin)| {
        let delay = bin.ack_path_delay_ns? as f64;
        Some((at as f64 * width_ns as f64, delay))
    };
    let points: Vec<(f64, f64)> = bins.iter().enumerate().filter_map(point).collect();
    let slope = skew(&points)?;
    let above = |(at, delay): (f64, f64)| delay - slope * at;
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
    let (time, delay) = (last.0 - first.0, last.1 - first.1);
    if time <= 0.0 || (delay / time).abs() > NO_MILLISECONDS {
        return (time <= 0.0).then_some(0.0);
    }
    let slope = slope_below(points)?;
    Some(slope.clamp(-SKEW_MAX, SKEW_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(delay_us: impl Fn(usize) -> i64) -> Vec<Bin> {
        let bin = |n| Bin {
            ack_path_delay_ns: Some(delay_us(n) * 1_000),
            ..Bin::default()
        };
        (0..1_000).map(bin).collect()
    }

    #[test]
    fn treats_wrapped_tsval_as_later() {
        let mut path_delay = AckPathDelay::default();
        assert_eq!(path_delay.delay_ns(5_000_000_000, u32::MAX), 0);
        assert_eq!(path_delay.delay_ns(5_012_500_000, 9), 2_500_000);
        assert_eq!(path_delay.delay_ns(5_010_000_000, 9), 0);
    }

    /// 10 ms a bin, 50 ppm: half a millisecond after ten seconds.
    #[test]
    fn removes_skew_of_slow_clock() {
        let drift = bins(|n| n as i64 / 2 + [0, 900, 400][n % 3]);
        let excess = excess_ns(&drift, 10_000_000).unwrap();
        assert!(excess.iter().flatten().all(|e| *e < 1_000_000.0));
    }

    #[test]
    fn keeps_delay_of_queued_acks() {
        let queue = bins(|n| if n < 100 { 0 } else { 80_000 });
        let excess = excess_ns(&queue, 10_000_000).unwrap();
        assert!(excess[500].unwrap() > 70e6);
        assert!(excess[50].unwrap() < 1e6);
    }

    #[test]
    fn ignores_timestamps_of_other_tick() {
        let tens = bins(|n| n as i64 * 9_000);
        assert_eq!(excess_ns(&tens, 10_000_000), None);
        assert_eq!(excess_ns(&[Bin::default()], 1), None);
    }
}
