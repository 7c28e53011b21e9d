// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cycle of a window from one loss to the next: deterministic growth up to a peak.
//!
//! Closed forms are derived from this cycle (Mathis and others, RFC 9438 section 5.1, Xu, Harfoush and Rhee).
//! Here the cycle is summed instead of integrated. A sum serves growth without a closed form, and paths whose
//! queue fills as the window passes the BDP.

/// Position in a cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Window, packets.
    pub window: f64,
    /// Peak of this cycle and of the previous one, packets.
    pub peak: f64,
    /// Time since the loss, seconds.
    pub elapsed_s: f64,
    /// Round trips since the loss.
    pub rounds: f64,
    /// Round trip at this moment with the queue, seconds.
    pub rtt_s: f64,
    /// Round trip without a queue, seconds.
    pub base_rtt_s: f64,
}

/// Growth of a window between two losses.
pub trait WindowGrowth {
    /// Returns the window after a loss at `peak`.
    fn after_loss(&self, peak: f64) -> f64;
    /// Returns the window `rounds` round trips after `at`, at least the window at `at`.
    fn grow(&self, at: Point, rounds: f64) -> f64;
}

/// Sums over one cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cycle {
    /// Packets sent.
    pub packets: f64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Duration, round trips.
    pub rounds: f64,
}

impl Cycle {
    /// Returns the packets a second.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.packets / self.seconds
    }
}

/// Largest number of steps in one cycle. More steps change the result by less than a thousandth.
const STEPS_MAX: u32 = 8192;
/// Number of step sizes, each four times the one before. A cycle too long for the largest does not end.
const STEP_SIZES: u32 = 16;

/// Returns the cycle of `growth` from `peak` packets to `peak` packets, over a path of `rtt_s` that `bdp`
/// packets fill. A `bdp` of `INFINITY` has no queue.
#[must_use]
pub fn cycle(growth: &dyn WindowGrowth, peak: f64, rtt_s: f64, bdp: f64) -> Cycle {
    let steps = (0..STEP_SIZES).map(|size| 0.25 * 4_f64.powi(size as i32));
    let mut cycles = steps.filter_map(|step| sum_cycle(growth, peak, rtt_s, bdp, step));
    cycles.next().unwrap_or(Cycle {
        packets: f64::INFINITY,
        seconds: f64::INFINITY,
        rounds: f64::INFINITY,
    })
}

/// Sums one cycle in steps of `step` round trips; `None` if that takes more than [`STEPS_MAX`].
fn sum_cycle(
    growth: &dyn WindowGrowth,
    peak: f64,
    rtt_s: f64,
    bdp: f64,
    step: f64,
) -> Option<Cycle> {
    let mut sum = Cycle {
        packets: 0.0,
        seconds: 0.0,
        rounds: 0.0,
    };
    let mut window = growth.after_loss(peak).max(1.0);
    for _ in 0..STEPS_MAX {
        let now = rtt_s * (window / bdp).max(1.0);
        let at = Point {
            window,
            peak,
            elapsed_s: sum.seconds,
            rounds: sum.rounds,
            rtt_s: now,
            base_rtt_s: rtt_s,
        };
        let next = growth.grow(at, step);
        let share = ((peak - window) / (next - window)).clamp(0.0, 1.0);
        let share = if next > window { share } else { 1.0 };
        let reached = window + (next - window) * share;
        sum.packets += (window + reached) / 2.0 * step * share;
        sum.seconds += now * step * share;
        sum.rounds += step * share;
        if next >= peak {
            return Some(sum);
        }
        window = next;
    }
    None
}

/// Returns the mean window in packets where a loss comes every `1/p` packets. A search between 1 and 10¹⁰
/// packets finds the peak whose cycle sends so many.
#[must_use]
pub fn mean_window(growth: &dyn WindowGrowth, p: f64, rtt_s: f64) -> f64 {
    let (mut low, mut high) = (1.0_f64, 1e10_f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if cycle(growth, middle, rtt_s, f64::INFINITY).packets * p < 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let steady = cycle(growth, low, rtt_s, f64::INFINITY);
    steady.packets / steady.rounds
}

#[cfg(test)]
mod tests {
    use super::{
        super::{cubic, hstcp, mathis::Reno, scalable},
        *,
    };

    #[test]
    fn mean_window_matches_the_closed_forms() {
        for p in [1e-4, 1e-5, 1e-6] {
            let close = |summed: f64, closed: f64, within: f64| {
                assert!(
                    (summed / closed - 1.0).abs() < within,
                    "{p}: {summed} {closed}"
                );
            };
            close(mean_window(&Reno, p, 0.1), (1.5 / p).sqrt(), 0.02);
            close(
                mean_window(&cubic::Cubic, p, 0.1),
                cubic::window(p, 0.1).value,
                0.03,
            );
            close(
                mean_window(&hstcp::Hstcp, p, 0.1),
                hstcp::window(p).value,
                0.1,
            );
            close(
                mean_window(&scalable::Scalable, p, 0.1),
                scalable::window(p).value,
                0.25,
            );
        }
    }

    /// The fifth paper, section 1: at 10 Gbit/s with 100 ms and packets of 1,500 bytes, Reno needs an hour and
    /// 40 minutes without a loss (RFC 3649 section 1).
    #[test]
    fn reno_takes_hours_on_a_long_fat_path() {
        let bdp = 10e9 * 0.1 / 12_000.0;
        // Half a window of 83,333 packets at a packet a round trip.
        let recovery = cycle(&Reno, bdp, 0.1, bdp);
        assert!((recovery.seconds / 4166.0 - 1.0).abs() < 0.01);
        // RFC 3649 counts one loss each 5e9 packets: mean window 83,333, peak 4/3 of that.
        let rfc = cycle(&Reno, bdp * 4.0 / 3.0, 0.1, f64::INFINITY);
        assert!(
            (rfc.seconds / 60.0 / 100.0 - 0.93).abs() < 0.05,
            "{}",
            rfc.seconds / 60.0
        );
    }

    #[test]
    fn queue_of_one_bdp_keeps_reno_at_the_full_rate() {
        let full = cycle(&Reno, 2000.0, 0.1, 1000.0);
        assert!(
            (full.rate() / 10_000.0 - 1.0).abs() < 0.01,
            "{}",
            full.rate()
        );
        let none = cycle(&Reno, 1000.0, 0.1, 1000.0);
        assert!(
            (none.rate() / 7_500.0 - 1.0).abs() < 0.01,
            "{}",
            none.rate()
        );
    }
}
