// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delay variation between an end and the capture point: the TSval of a packet (RFC 7323 §3) gives the time when it
//! left.
//!
//! The offset of the end's clock is unknown, so only differences are valid: the delay of a packet above that of the
//! fastest packet of its direction. They separate a queue of ACKs from a queue of data; a round trip does not.

use crate::clock_skew::slope_below;
use crate::segment::Segment;

/// Greatest difference in rate between the clocks of two hosts (RFC 5905 §7.1 assumes 15 ppm; crystals are sold with
/// 100 ppm).
const SKEW_MAX: f64 = 100e-6;
/// Clock error above which the timestamps do not count milliseconds.
const NO_MILLISECONDS: f64 = 0.2;

/// Time reference for the packets of one direction: the first one.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathDelay {
    first: Option<(u64, u32)>,
    last_tsval: u32,
}

impl PathDelay {
    /// Returns the delay of a packet as [`PathDelay::delay_ns`] does. `None` if a packet with the same TSval came just
    /// before it, which had less, and `is_known` says that it counts.
    #[inline]
    pub(crate) fn least_delay_ns(&mut self, packet: &Segment, is_known: bool) -> Option<i64> {
        let repeats = std::mem::replace(&mut self.last_tsval, packet.tsval) == packet.tsval;
        (!repeats || !is_known).then(|| self.delay_ns(packet))
    }

    /// Returns the delay of a packet with timestamps relative to the first one, ns; below zero if it was faster. The
    /// timestamps must count milliseconds, as those of Linux, FreeBSD, macOS and Windows do.
    #[inline]
    pub fn delay_ns(&mut self, packet: &Segment) -> i64 {
        let (at_ns, tsval) = (packet.at_ns, packet.tsval);
        let (first_ns, first_tsval) = *self.first.get_or_insert((at_ns, tsval));
        let elapsed = at_ns.wrapping_sub(first_ns) as i64;
        let ticks = i64::from(tsval.wrapping_sub(first_tsval) as i32);
        elapsed.saturating_sub(ticks * 1_000_000)
    }
}

/// Returns the delay of each bin above that of the fastest packet, ns. `delays_ns` has the least of each bin. The
/// difference in rate of the clocks is removed, as far as a clock may be off: it is the slope of the nearest line below
/// all points (`clock_skew.rs`). `None` without timestamps that count milliseconds.
pub(crate) fn excess_ns(delays_ns: &[Option<f64>], width_ns: u64) -> Option<Vec<Option<f64>>> {
    let point = |(at, delay): (usize, &Option<f64>)| Some((at as f64 * width_ns as f64, (*delay)?));
    let points: Vec<(f64, f64)> = delays_ns.iter().enumerate().filter_map(point).collect();
    let slope = skew(&points)?;
    let above = |(at, delay): (f64, f64)| delay - slope * at;
    let least = points
        .iter()
        .copied()
        .map(above)
        .fold(f64::INFINITY, f64::min);
    let excess = |item| point(item).map(|point| above(point) - least);
    Some(delays_ns.iter().enumerate().map(excess).collect())
}

fn skew(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    match last.0 > first.0 {
        true if counts_milliseconds(points) => {
            Some(slope_below(points)?.clamp(-SKEW_MAX, SKEW_MAX))
        }
        true => None,
        false => Some(0.0),
    }
}

/// Returns whether timestamps count milliseconds. Another tick makes all delays change at the same rate. A queue may grow
/// as fast, but not all the time.
fn counts_milliseconds(points: &[(f64, f64)]) -> bool {
    let (first, second) = points.split_at(points.len() / 2);
    let is_steady = |points| drift(points).abs() <= NO_MILLISECONDS;
    is_steady(points) || points.len() > 3 && (is_steady(first) || is_steady(second))
}

/// Returns the change of the delay a unit of time, from the first point to the last.
fn drift(points: &[(f64, f64)]) -> f64 {
    match points {
        [first, .., last] if last.0 > first.0 => (last.1 - first.1) / (last.0 - first.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(delay_us: impl Fn(usize) -> i64) -> Vec<Option<f64>> {
        (0..1_000).map(|n| Some(delay_us(n) as f64 * 1e3)).collect()
    }

    fn packet(at_ns: u64, tsval: u32) -> Segment {
        Segment {
            at_ns,
            tsval,
            ..Segment::default()
        }
    }

    #[test]
    fn treats_wrapped_tsval_as_later() {
        let mut path_delay = PathDelay::default();
        assert_eq!(path_delay.delay_ns(&packet(5_000_000_000, u32::MAX)), 0);
        assert_eq!(path_delay.delay_ns(&packet(5_012_500_000, 9)), 2_500_000);
        assert_eq!(path_delay.delay_ns(&packet(5_010_000_000, 9)), 0);
    }

    /// 10 ms a bin, 50 ppm: half a millisecond after ten seconds.
    #[test]
    fn removes_skew_of_slow_clock() {
        let drift = delays(|n| n as i64 / 2 + [0, 900, 400][n % 3]);
        let excess = excess_ns(&drift, 10_000_000).unwrap();
        assert!(excess.iter().flatten().all(|e| *e < 1_000_000.0));
    }

    #[test]
    fn keeps_delay_of_queued_acks() {
        let queue = delays(|n| if n < 100 { 0 } else { 80_000 });
        let excess = excess_ns(&queue, 10_000_000).unwrap();
        assert!(excess[500].unwrap() > 70e6);
        assert!(excess[50].unwrap() < 1e6);
    }

    /// The queue grows for 2.5 of ten seconds, by as much as they last.
    #[test]
    fn keeps_delay_of_a_queue_that_grows_fast() {
        let queue = delays(|n| 10_000 * n.min(250) as i64);
        let excess = excess_ns(&queue, 10_000_000).unwrap();
        assert!(excess[900].unwrap() > 2.4e9);
    }

    #[test]
    fn ignores_timestamps_of_other_tick() {
        let tens = delays(|n| n as i64 * 9_000);
        assert_eq!(excess_ns(&tens, 10_000_000), None);
        assert_eq!(excess_ns(&[None], 1), None);
    }
}
