// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one loss to the next: the deterministic cycle of a window that grows by a law up to a peak.
//!
//! It is what closed forms are derived from (Mathis and others, RFC 9438 section 5.1, Xu, Harfoush and
//! Rhee), summed instead of integrated, so that it serves laws without a closed form,
//! and paths whose queue fills as the window passes the BDP.

/// Where a cycle is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Packets.
    pub window: f64,
    /// Of this cycle, and of the one before.
    pub peak: f64,
    /// Since the loss, seconds.
    pub elapsed_s: f64,
    /// Since the loss, round trips.
    pub rounds: f64,
    /// Round trip at this moment, seconds, with the queue.
    pub rtt_s: f64,
    /// Round trip without queue.
    pub base_rtt_s: f64,
}

/// How a window grows.
pub trait Law {
    /// The window after a loss at `peak`.
    fn after_loss(&self, peak: f64) -> f64;
    /// The window `rounds` round trips after `at`, not smaller than there.
    fn grown(&self, at: Point, rounds: f64) -> f64;
}

/// One cycle's sums.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cycle {
    /// Packets sent.
    pub packets: f64,
    /// How long it takes.
    pub seconds: f64,
    /// Likewise, in round trips.
    pub rounds: f64,
}

impl Cycle {
    /// Packets a second.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.packets / self.seconds
    }
}

/// Steps of one cycle; more makes it no better than a thousandth.
const STEPS_MAX: u32 = 8192;
/// A step is at most 4^16 round trips: a cycle that takes longer does not end.
const COARSER_MAX: u32 = 16;

/// The cycle of `law` from `peak` packets to `peak` packets over a path of `rtt_s` that `bdp`
/// packets fill; `INFINITY` has no queue.
#[must_use]
pub fn cycle(law: &dyn Law, peak: f64, rtt_s: f64, bdp: f64) -> Cycle {
    let steps = (0..COARSER_MAX).map(|coarser| 0.25 * 4_f64.powi(coarser as i32));
    let mut cycles = steps.filter_map(|step| stepped(law, peak, rtt_s, bdp, step));
    cycles.next().unwrap_or(Cycle {
        packets: f64::INFINITY,
        seconds: f64::INFINITY,
        rounds: f64::INFINITY,
    })
}

fn stepped(law: &dyn Law, peak: f64, rtt_s: f64, bdp: f64, step: f64) -> Option<Cycle> {
    let mut sum = Cycle {
        packets: 0.0,
        seconds: 0.0,
        rounds: 0.0,
    };
    let mut window = law.after_loss(peak).max(1.0);
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
        let next = law.grown(at, step);
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

/// The mean window in packets where a loss comes each `1/p` packets: the peak whose cycle sends so
/// many is searched between 1 and 10¹⁰ packets.
#[must_use]
pub fn mean_window(law: &dyn Law, p: f64, rtt_s: f64) -> f64 {
    let (mut low, mut high) = (1.0_f64, 1e10_f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        match cycle(law, middle, rtt_s, f64::INFINITY).packets * p < 1.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    let steady = cycle(law, low, rtt_s, f64::INFINITY);
    steady.packets / steady.rounds
}

#[cfg(test)]
mod tests {
    use super::{
        super::{cubic, hstcp, mathis::Reno, scalable},
        *,
    };

    #[test]
    fn it_comes_to_the_closed_forms() {
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

    /// The fifth paper, section 1: with 100 ms and packets of 1,500 bytes, Reno needs 10 Gbit/s' worth
    /// of an hour and 40 minutes without a loss (RFC 3649 section 1).
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
    fn a_queue_of_one_bdp_keeps_reno_at_the_full_rate() {
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
