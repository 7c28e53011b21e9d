// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of a captured flow, as `docs/lab.md` explains them.

use super::fine::{FineBin, FineBins, WIDTH_NS, WIDTH_S};
use longhaul_flow::record::{Direction, Limit, Phase, PhaseKind};
use longhaul_results::result::Metrics;
use longhaul_stats::sample::quantile_by_rank;

/// One second in ns.
const SECOND_NS: u64 = 1_000_000_000;

/// Computes all metrics of a direction. Those that need bins of 1 ms are absent without them.
pub(super) fn of(direction: &Direction, fine: Option<&FineBins>) -> Metrics {
    let rates = fine
        .into_iter()
        .flat_map(peak_rates)
        .chain(steady_rates(direction));
    let acks = acks(direction).into_iter();
    let acks = acks.chain(fine.into_iter().flat_map(|fine| ack_rates(direction, fine)));
    let all = rates
        .chain(phase_lengths(direction))
        .chain(acks)
        .chain(loss_metrics(direction));
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

type Figures = Vec<(&'static str, f64)>;

/// Largest rate over a whole second, of sent and of acknowledged data.
fn peak_rates(fine: &FineBins) -> Figures {
    let second = (SECOND_NS / WIDTH_NS) as usize;
    let best = |bytes: fn(&FineBin) -> u64| {
        let seconds = fine.bins.chunks_exact(second);
        let sums = seconds.map(|bins| bins.iter().map(bytes).sum::<u64>());
        sums.max().map(|bytes| bytes as f64 * 8.0)
    };
    let peak_rates = [
        ("data_peak_bps", best(|bin| bin.data_bytes)),
        ("acked_peak_bps", best(|bin| bin.acked_bytes)),
    ];
    present(peak_rates)
}

fn steady_rates(direction: &Direction) -> Figures {
    let steady = |of: fn(&Phase) -> f64| mean(direction, PhaseKind::Steady, of);
    present([
        ("data_steady_bps", steady(|phase| phase.data_bps)),
        ("acked_steady_bps", steady(|phase| phase.acked_bps)),
    ])
}

/// Total length of each kind of phase. Empty for a flow without phases.
fn phase_lengths(direction: &Direction) -> Figures {
    let kinds = [
        ("ramp_up_s", PhaseKind::RampUp),
        ("peak_s", PhaseKind::Peak),
        ("steady_s", PhaseKind::Steady),
        ("recovery_s", PhaseKind::Recovery),
    ];
    let length = |kind| sum(phases(direction, kind).map(length_s));
    if direction.phases.is_empty() {
        Vec::new()
    } else {
        kinds.map(|(name, kind)| (name, length(kind))).to_vec()
    }
}

fn acks(direction: &Direction) -> Figures {
    let rate = |kind| mean(direction, kind, |phase| phase.acks_per_s);
    let (segments, pure) = (direction.data.data_segments, direction.acks.pure);
    let found = direction.ack_diff.count > 0;
    present([
        (
            "ack_diff_mean_bytes",
            found.then_some(direction.ack_diff.mean),
        ),
        (
            "packets_per_ack_ratio",
            (pure > 0).then(|| segments as f64 / pure as f64),
        ),
        ("ramp_up_acks_pps", rate(PhaseKind::RampUp)),
        ("steady_acks_pps", rate(PhaseKind::Steady)),
    ])
}

/// Percentiles of the ACK rate in bins of 1 ms, after the ramp-up.
fn ack_rates(direction: &Direction, fine: &FineBins) -> Figures {
    let mut acks: Vec<u32> = after_ramp_up(direction, fine)
        .iter()
        .map(|bin| bin.acks)
        .collect();
    acks.sort_unstable();
    let at = |share: f64| Some(f64::from(quantile_by_rank(&acks, share)?) / WIDTH_S);
    present([
        ("acks_median_pps", at(0.5)),
        ("acks_p5_pps", at(0.05)),
        ("acks_p95_pps", at(0.95)),
    ])
}

/// Bins from the end of the ramp-up, or from the beginning, to the last data.
fn after_ramp_up<'a>(direction: &Direction, fine: &'a FineBins) -> &'a [FineBin] {
    let ramp_up = direction
        .phases
        .first()
        .filter(|phase| phase.kind == PhaseKind::RampUp);
    let from = ramp_up.map_or(fine.from_ns, |phase| phase.to_ns);
    fine.between(from..direction.data.last_data_ns.unwrap_or(from))
}

fn loss_metrics(direction: &Direction) -> Figures {
    let limits = &direction.limits;
    let span = |one: &longhaul_flow::record::LimitPeriod| (one.to_ns - one.from_ns) as f64;
    let all = sum(limits.iter().map(span));
    let by_acks = limits.iter().filter(|one| one.limit == Limit::AckStream);
    let share = sum(by_acks.map(span)) / all;
    present([
        ("ack_limited_ratio", share.is_finite().then_some(share)),
        (
            "data_retransmits",
            Some(direction.data.retransmissions as f64),
        ),
        ("duplicate_acks", Some(direction.acks.duplicates as f64)),
    ])
}

fn phases(direction: &Direction, kind: PhaseKind) -> impl Iterator<Item = &Phase> {
    direction
        .phases
        .iter()
        .filter(move |phase| phase.kind == kind)
}

fn length_s(phase: &Phase) -> f64 {
    (phase.to_ns - phase.from_ns) as f64 / 1e9
}

/// Mean over all phases of a kind, weighted by their length.
fn mean(direction: &Direction, kind: PhaseKind, of: fn(&Phase) -> f64) -> Option<f64> {
    let weighted = phases(direction, kind).map(|phase| of(phase) * length_s(phase));
    let mean = sum(weighted) / sum(phases(direction, kind).map(length_s));
    mean.is_finite().then_some(mean)
}

/// Sum of the values; 0 for none, where `Iterator::sum` gives −0.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

fn present<const N: usize>(figures: [(&'static str, Option<f64>); N]) -> Figures {
    let known = figures.into_iter();
    known
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::record::{Acks, Data, Distribution, LimitPeriod};
    use longhaul_report::registry::{Producer, metrics_of};

    fn phase(kind: PhaseKind, s: std::ops::Range<u64>, bps: f64) -> Phase {
        Phase {
            kind,
            from_ns: s.start * SECOND_NS,
            to_ns: s.end * SECOND_NS,
            data_bps: bps,
            acked_bps: bps / 2.0,
            acks_per_s: bps / 1000.0,
            packets_per_ack: 2.0,
        }
    }

    /// Two seconds of ramp-up, one at 3 and three at 1 Mbit/s, with 4 ACKs a millisecond after the
    /// ramp-up.
    fn flow() -> (Direction, FineBins) {
        let phases = vec![
            phase(PhaseKind::RampUp, 0..2, 5e5),
            phase(PhaseKind::Steady, 2..3, 3e6),
            phase(PhaseKind::Steady, 3..6, 1e6),
        ];
        let limited = |by, s: std::ops::Range<u64>| LimitPeriod {
            limit: by,
            from_ns: s.start * SECOND_NS,
            to_ns: s.end * SECOND_NS,
        };
        let direction = Direction {
            data: Data {
                data_segments: 60,
                retransmissions: 3,
                fast_retransmissions: 2,
                spurious_retransmissions: 1,
                last_data_ns: Some(6 * SECOND_NS),
                ..Data::default()
            },
            acks: Acks {
                pure: 20,
                duplicates: 7,
                ..Acks::default()
            },
            ack_diff: Distribution {
                count: 20,
                mean: 2896.0,
                ..Distribution::default()
            },
            phases,
            limits: vec![
                limited(Limit::CongestionWindow, 0..3),
                limited(Limit::AckStream, 3..6),
            ],
            ..Direction::default()
        };
        let bin = |ms: u64| FineBin {
            data_bytes: if (2000..3000).contains(&ms) { 375 } else { 125 },
            acked_bytes: 100,
            acks: if ms < 2000 { 99 } else { 4 },
        };
        let fine = FineBins {
            from_ns: 0,
            bins: (0..6500).map(bin).collect(),
        };
        (direction, fine)
    }

    #[test]
    fn computes_every_metric_of_a_complete_flow() {
        let (direction, fine) = flow();
        let found = of(&direction, Some(&fine));
        let expected = [
            ("data_peak_bps", 3e6),
            ("acked_peak_bps", 8e5),
            ("data_steady_bps", 1.5e6),
            ("acked_steady_bps", 7.5e5),
            ("ramp_up_s", 2.0),
            ("peak_s", 0.0),
            ("steady_s", 4.0),
            ("recovery_s", 0.0),
            ("ack_diff_mean_bytes", 2896.0),
            ("packets_per_ack_ratio", 3.0),
            ("ramp_up_acks_pps", 500.0),
            ("steady_acks_pps", 1500.0),
            ("acks_median_pps", 4000.0),
            ("acks_p5_pps", 4000.0),
            ("acks_p95_pps", 4000.0),
            ("ack_limited_ratio", 0.5),
            ("data_retransmits", 3.0),
            ("duplicate_acks", 7.0),
        ];
        let found: Vec<(&str, f64)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        assert_eq!(found, expected);
        assert!(
            expected
                .map(|(name, _)| name)
                .into_iter()
                .eq(metrics_of(Producer::Capture))
        );
    }

    #[test]
    fn omits_metrics_without_data() {
        let found = of(&Direction::default(), None);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["data_retransmits", "duplicate_acks"]);
    }

    #[test]
    fn ack_rate_percentiles_exclude_the_ramp_up() {
        let (mut direction, fine) = flow();
        direction.phases.remove(0);
        let found = of(&direction, Some(&fine));
        assert_eq!(found["acks_p95_pps"], 99_000.0);
        assert_eq!(found["acks_p5_pps"], 4000.0);
    }
}
