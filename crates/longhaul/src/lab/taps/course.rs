// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tapped flow's course, thinned to what a page can show: each bin with its mean and with the least and
//! the greatest millisecond in it.

use super::fine::{Fine, FineBins};
use crate::lab::result::{Spread, TapPhase, TapSeries};
use model::tap::record::{Direction, Phase, PhaseKind};

/// Bins of a course at most: about two pixels each on a wide page.
const BINS_MAX: usize = 512;
/// How many fine bins become one, so that whole seconds are whole bins.
const TOGETHER: [usize; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];

/// Without the names of flow and link.
pub(super) fn of(direction: &Direction, fine: &FineBins) -> TapSeries {
    let together = together(fine.bins.len());
    let spread = |of: &dyn Fn(&Fine) -> f64| spread(fine, together, of);
    let bps = 8.0 / fine.width_s();
    TapSeries {
        bin_ms: together as f64 * fine.width_ns as f64 / 1e6,
        fine_ms: fine.width_ns as f64 / 1e6,
        data_bps: spread(&|bin| bin.data_bytes as f64 * bps),
        acked_bps: spread(&|bin| bin.acked_bytes as f64 * bps),
        acks: spread(&|bin| f64::from(bin.acks)),
        phases: direction
            .phases
            .iter()
            .map(|one| phase(one, fine.from_ns))
            .collect(),
        ..TapSeries::default()
    }
}

fn together(bins: usize) -> usize {
    let enough = |n: &usize| bins.div_ceil(*n) <= BINS_MAX;
    let whole_seconds = || bins.div_ceil(BINS_MAX).div_ceil(1000) * 1000;
    TOGETHER
        .into_iter()
        .find(enough)
        .unwrap_or_else(whole_seconds)
}

fn spread(fine: &FineBins, together: usize, of: &dyn Fn(&Fine) -> f64) -> Spread {
    let mut spread = Spread::default();
    for bins in fine.bins.chunks(together) {
        let values = || bins.iter().map(of);
        spread
            .low
            .push(rounded(values().fold(f64::INFINITY, f64::min)));
        spread.high.push(rounded(values().fold(0.0, f64::max)));
        spread
            .mean
            .push(rounded(values().sum::<f64>() / bins.len() as f64));
    }
    spread
}

/// Four digits: a chart shows three, and a result is a third as long.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn phase(phase: &Phase, zero_ns: u64) -> TapPhase {
    let seconds = |at_ns: u64| at_ns.saturating_sub(zero_ns) as f64 / 1e9;
    TapPhase {
        name: name(phase.kind).to_owned(),
        from_s: seconds(phase.from_ns),
        to_s: seconds(phase.to_ns),
    }
}

fn name(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::RampUp => "ramp-up",
        PhaseKind::Peak => "peak",
        PhaseKind::Steady => "steady",
        PhaseKind::Recovery => "recovery",
        PhaseKind::Idle => "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine(bins: usize) -> FineBins {
        let bin = |n: usize| Fine {
            data_bytes: (n % 10) as u64 * 1000,
            acks: (n % 3) as u32,
            ..Fine::default()
        };
        FineBins {
            from_ns: 5_000_000,
            width_ns: 1_000_000,
            bins: (0..bins).map(bin).collect(),
        }
    }

    #[test]
    fn bins_have_mean_least_and_greatest_of_the_milliseconds_in_them() {
        let course = of(&Direction::default(), &fine(5000));
        assert_eq!((course.bin_ms, course.fine_ms), (10.0, 1.0));
        assert_eq!(course.data_bps.mean, vec![36e6; 500]);
        assert_eq!(course.data_bps.low, vec![0.0; 500]);
        assert_eq!(course.data_bps.high, vec![72e6; 500]);
        assert_eq!(course.acks.high, vec![2.0; 500]);
    }

    #[test]
    fn a_course_is_bounded_and_its_bins_divide_seconds() {
        let cases = [
            (1, 1),
            (512, 1),
            (513, 2),
            (40_000, 100),
            (256_000, 500),
            (256_001, 1000),
            (1 << 20, 3000),
        ];
        for (bins, expected) in cases {
            assert_eq!(together(bins), expected, "{bins}");
            assert!(bins.div_ceil(expected) <= BINS_MAX);
        }
    }

    #[test]
    fn phases_count_from_the_first_data() {
        let one = Phase {
            kind: PhaseKind::RampUp,
            from_ns: 4_000_000,
            to_ns: 1_005_000_000,
            data_bps: 0.0,
            acked_bps: 0.0,
            acks_per_s: 0.0,
            packets_per_ack: 0.0,
        };
        let found = phase(&one, 5_000_000);
        assert_eq!((found.from_s, found.to_s), (0.0, 1.0));
        assert_eq!(found.name, "ramp-up");
    }
}
