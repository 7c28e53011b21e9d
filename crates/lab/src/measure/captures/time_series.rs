// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of a captured flow, thinned to what a page can show. Each bin has its mean, and the
//! 5th and 95th percentile of its milliseconds. Minimum and maximum are no use: nearly every tenth
//! of a second has a millisecond with nothing and one with a burst.

use super::fine::{FineBin, FineBins, WIDTH_NS, WIDTH_S};
use longhaul_flow::record::{Direction, Phase, PhaseKind};
use longhaul_report::scale::round_step;
use longhaul_results::result::{CaptureSeries, FlowPhase, PercentileBand};
use longhaul_stats::sample;

/// Most bins of a time series: about two pixels each on a wide page.
const BINS_MAX: usize = 512;

/// Returns the time series of a direction, without the names of flow and link.
pub(super) fn of(direction: &Direction, fine: &FineBins) -> CaptureSeries {
    let bins_per_point = bins_per_point(fine.bins.len());
    let spread = |of: &dyn Fn(&FineBin) -> f64| spread(fine, bins_per_point, of);
    let bps = 8.0 / WIDTH_S;
    CaptureSeries {
        bin_ms: bins_per_point as f64 * WIDTH_NS as f64 / 1e6,
        fine_ms: WIDTH_NS as f64 / 1e6,
        data_bps: spread(&|bin| bin.data_bytes as f64 * bps),
        acked_bps: spread(&|bin| bin.acked_bytes as f64 * bps),
        acks: spread(&|bin| f64::from(bin.acks)),
        phases: direction
            .phases
            .iter()
            .map(|one| phase(one, fine.from_ns))
            .collect(),
        ..CaptureSeries::default()
    }
}

/// Number of fine bins that become one bin, such that whole seconds are whole bins.
fn bins_per_point(bins: usize) -> usize {
    match bins.div_ceil(BINS_MAX).max(1) {
        least @ ..=1000 => round_step(least as f64) as usize,
        least => least.div_ceil(1000) * 1000,
    }
}

fn spread(fine: &FineBins, bins_per_point: usize, of: &dyn Fn(&FineBin) -> f64) -> PercentileBand {
    let mut spread = PercentileBand::default();
    for bins in fine.bins.chunks(bins_per_point) {
        let values = sample::sorted(bins.iter().map(of));
        let at = |share| sample::quantile_by_rank(&values, share).map(rounded);
        spread.low.extend(at(0.05));
        spread.high.extend(at(0.95));
        spread
            .mean
            .extend(sample::mean(bins.iter().map(of)).map(rounded));
    }
    spread
}

/// Rounds to four digits. A chart shows three, and the result is a third as long.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn phase(phase: &Phase, zero_ns: u64) -> FlowPhase {
    let seconds = |at_ns: u64| at_ns.saturating_sub(zero_ns) as f64 / 1e9;
    FlowPhase {
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
        let bin = |n: usize| FineBin {
            data_bytes: (n % 10) as u64 * 1000,
            acks: (n % 3) as u32,
            ..FineBin::default()
        };
        FineBins {
            from_ns: 5_000_000,
            bins: (0..bins).map(bin).collect(),
        }
    }

    #[test]
    fn bins_have_the_mean_and_the_5th_and_95th_percentile() {
        let series = of(&Direction::default(), &fine(50_000));
        assert_eq!((series.bin_ms, series.fine_ms), (100.0, 1.0));
        assert_eq!(series.data_bps.mean, vec![36e6; 500]);
        // Of ten equal steps from 0 to 72 Mbit/s, the lowest and the highest are 10 % each.
        assert_eq!(series.data_bps.low, vec![0.0; 500]);
        assert_eq!(series.data_bps.high, vec![72e6; 500]);
        let mut burst = fine(50_000);
        burst.bins[7].data_bytes = 1_000_000;
        let series = of(&Direction::default(), &burst);
        assert_eq!(series.data_bps.high[0], 72e6, "one in a hundred");
    }

    #[test]
    fn number_of_bins_is_bounded_and_bins_divide_seconds() {
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
            assert_eq!(bins_per_point(bins), expected, "{bins}");
            assert!(bins.div_ceil(expected) <= BINS_MAX);
        }
    }

    #[test]
    fn phase_times_count_from_the_first_data() {
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
