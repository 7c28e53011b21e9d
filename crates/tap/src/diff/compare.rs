// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two directions (`longhaul tap diff`): each figure of both, their difference, and whether it is
//! significant.
//!
//! A figure is significant if it differs by a tenth or more: two runs of the same transfer on one machine usually
//! differ by less. Counts must also differ by three standard deviations of a Poisson process, because one
//! retransmission more or less means nothing. Shares of time must differ by five percentage points.
//! [`significant_figures`] sorts by the distance from these thresholds.

use longhaul_flow::record::{Direction, Distribution, Limit, Phase, PhaseKind};
use longhaul_flow::verdict::limit_shares;
use serde::Serialize;

/// Value of one metric in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figure {
    /// Name, ending in the unit: `goodput_bps`.
    pub(super) name: &'static str,
    /// Value in A; absent where it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) a: Option<f64>,
    /// Value in B; absent where it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) b: Option<f64>,
    /// `b − a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<f64>,
    /// `b / a`; absent where `a` is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// Difference relative to the threshold of chance: significant from 1 on, at most [`WEIGHT_MAX`].
    pub(super) weight: f64,
}

/// Weight of a figure that only one of both has.
pub(super) const WEIGHT_MAX: f64 = 100.0;

/// Returns all figures that at least one of both has, in a fixed order.
pub(super) fn compare_figures(a: &Direction, b: &Direction) -> Vec<Figure> {
    let figure =
        |metric: &MetricDefinition| Figure::of(metric, (metric.value)(a), (metric.value)(b));
    METRICS.iter().filter_map(figure).collect()
}

/// Returns the significant ones among `figures`, largest weight first.
pub(super) fn significant_figures(figures: &[Figure]) -> Vec<Figure> {
    let mut significant: Vec<Figure> = figures
        .iter()
        .copied()
        .filter(Figure::is_significant)
        .collect();
    significant.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    significant
}

impl Figure {
    fn of(metric: &MetricDefinition, a: Option<f64>, b: Option<f64>) -> Option<Self> {
        let both = a.zip(b);
        let is_zero = a.unwrap_or(0.0) == 0.0 && b.unwrap_or(0.0) == 0.0;
        (!is_zero).then(|| Self {
            name: metric.name,
            a,
            b,
            difference: both.map(|(a, b)| b - a),
            ratio: both.filter(|(a, _)| *a != 0.0).map(|(a, b)| b / a),
            weight: both.map_or(0.0, |(a, b)| metric.kind.weight(a, b)),
        })
    }

    /// Returns whether the difference is more than chance.
    pub(super) fn is_significant(&self) -> bool {
        self.weight >= 1.0
    }
}

/// Definition of a compared metric.
struct MetricDefinition {
    name: &'static str,
    kind: ChangeScale,
    value: fn(&Direction) -> Option<f64>,
}

/// Scale on which a difference is judged.
#[derive(Debug, Clone, Copy)]
enum ChangeScale {
    /// Size, judged by the ratio.
    Size,
    /// Number of events, judged by the ratio and by the standard deviation of a Poisson process.
    Count,
    /// Share of time from 0 to 1, judged by the difference.
    Share,
}

/// Minimum differences that are significant: factor, standard deviations, and difference of shares of time.
const RATIO_MIN: f64 = 1.1;
const DEVIATIONS_MIN: f64 = 3.0;
const SHARE_DIFFERENCE_MIN: f64 = 0.05;

impl ChangeScale {
    fn weight(self, a: f64, b: f64) -> f64 {
        let weight = match self {
            Self::Size => ratio_weight(a, b),
            Self::Count => ratio_weight(a, b).min(poisson_weight(a, b)),
            Self::Share => (b - a).abs() / SHARE_DIFFERENCE_MIN,
        };
        weight.min(WEIGHT_MAX)
    }
}

fn ratio_weight(a: f64, b: f64) -> f64 {
    match a > 0.0 && b > 0.0 {
        true => (b / a).ln().abs() / RATIO_MIN.ln(),
        false if a == b => 0.0,
        false => WEIGHT_MAX,
    }
}

fn poisson_weight(a: f64, b: f64) -> f64 {
    (b - a).abs() / (a + b).sqrt().max(1.0) / DEVIATIONS_MIN
}

const fn metric(
    name: &'static str,
    kind: ChangeScale,
    of: fn(&Direction) -> Option<f64>,
) -> MetricDefinition {
    MetricDefinition {
        name,
        kind,
        value: of,
    }
}

const METRICS: [MetricDefinition; 31] = {
    use ChangeScale::{Count, Share, Size};
    [
        metric("goodput_bps", Size, Direction::goodput_bps),
        metric("payload_bytes", Size, |d| number(d.data.unique_bytes)),
        metric("duration_s", Size, |d| duration_ns(d).map(seconds)),
        metric("rtt_min_s", Size, |d| {
            statistic(d.round_trips(), |rtt| rtt.min).map(seconds)
        }),
        metric("rtt_median_s", Size, |d| {
            statistic(d.round_trips(), |rtt| rtt.p50).map(seconds)
        }),
        metric("rtt_p99_s", Size, |d| {
            statistic(d.round_trips(), |rtt| rtt.p99).map(seconds)
        }),
        metric("in_flight_max_bytes", Size, |d| {
            number(d.in_flight_max_bytes)
        }),
        metric("window_min_bytes", Size, |d| {
            number(d.acks.window_min_bytes)
        }),
        metric("retransmitted_packets", Count, |d| {
            number(d.data.retransmissions)
        }),
        metric("retransmitted_bytes", Size, |d| {
            number(d.data.retransmitted_bytes)
        }),
        metric("timeouts", Count, |d| {
            number(d.data.timeout_retransmissions)
        }),
        metric("reported_ecn_marks", Count, |d| {
            number(d.ecn.ece_acks + d.ecn.reported_ce_packets)
        }),
        metric("pure_acks", Count, |d| number(d.acks.pure)),
        metric("duplicate_acks", Count, |d| number(d.acks.duplicates)),
        metric("packets_per_ack_ratio", Size, |d| {
            let per_ack = &d.packets_per_ack;
            (per_ack.count > 0).then_some(per_ack.mean)
        }),
        metric("ack_diff_median_bytes", Size, |d| {
            statistic(&d.ack_diff, |diff| diff.p50)
        }),
        metric("ack_diff_p99_bytes", Size, |d| {
            statistic(&d.ack_diff, |diff| diff.p99)
        }),
        metric("ack_diff_max_bytes", Size, |d| {
            statistic(&d.ack_diff, |diff| diff.max)
        }),
        metric("inter_packet_gap_median_s", Size, |d| {
            statistic(&d.inter_packet_gaps, |gap| gap.p50).map(seconds)
        }),
        metric("inter_packet_gap_p99_s", Size, |d| {
            statistic(&d.inter_packet_gaps, |gap| gap.p99).map(seconds)
        }),
        metric("burst_median_segments", Size, |d| {
            statistic(&d.bursts, |burst| burst.p50)
        }),
        metric("burst_max_segments", Size, |d| {
            statistic(&d.bursts, |burst| burst.max)
        }),
        metric("ramp_up_s", Size, |d| phase_s(d, PhaseKind::RampUp)),
        metric("peak_s", Size, |d| phase_s(d, PhaseKind::Peak)),
        metric("steady_s", Size, |d| phase_s(d, PhaseKind::Steady)),
        metric("recovery_s", Size, |d| phase_s(d, PhaseKind::Recovery)),
        metric("limited_by_application_ratio", Share, |d| {
            share_limited_by(d, Limit::Application)
        }),
        metric("limited_by_receive_window_ratio", Share, |d| {
            share_limited_by(d, Limit::ReceiveWindow)
        }),
        metric("limited_by_congestion_window_ratio", Share, |d| {
            share_limited_by(d, Limit::CongestionWindow)
        }),
        metric("limited_by_bottleneck_bandwidth_ratio", Share, |d| {
            share_limited_by(d, Limit::BottleneckBandwidth)
        }),
        metric("limited_by_ack_stream_ratio", Share, |d| {
            share_limited_by(d, Limit::AckStream)
        }),
    ]
};

#[expect(clippy::unnecessary_wraps, reason = "a metric that always has a value")]
fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn seconds(ns: f64) -> f64 {
    ns / 1e9
}

fn statistic(samples: &Distribution, value: fn(&Distribution) -> u64) -> Option<f64> {
    (samples.count > 0).then(|| value(samples) as f64)
}

fn duration_ns(direction: &Direction) -> Option<f64> {
    let duration = direction.transfer_ns()?;
    (duration > 0).then_some(duration as f64)
}

fn phase_s(direction: &Direction, kind: PhaseKind) -> Option<f64> {
    let of_kind = direction.phases.iter().filter(|phase| phase.kind == kind);
    Some(seconds(of_kind.map(Phase::duration_ns).sum::<u64>() as f64))
}

/// Returns the share of the time with a known limit.
fn share_limited_by(direction: &Direction, by: Limit) -> Option<f64> {
    let shares = limit_shares(&direction.limits);
    let share = shares.iter().find(|(limit, _)| *limit == by);
    (!shares.is_empty()).then(|| share.map_or(0.0, |(_, share)| *share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_flow::record::LimitPeriod;

    fn direction(bytes: u64, fast: u64) -> Direction {
        let mut direction = Direction::default();
        direction.data.unique_bytes = bytes;
        direction.data.fast_retransmissions = fast;
        direction.data.retransmissions = fast;
        (direction.data.first_data_ns, direction.data.last_data_ns) =
            (Some(0), Some(8_000_000_000));
        direction
    }

    fn names(figures: &[Figure]) -> Vec<&str> {
        figures.iter().map(|figure| figure.name).collect()
    }

    #[test]
    fn equal_directions_have_no_significant_figure() {
        let equal_figures = compare_figures(&direction(1_000, 3), &direction(1_000, 3));
        let expected_names = [
            "goodput_bps",
            "payload_bytes",
            "duration_s",
            "retransmitted_packets",
        ];
        assert_eq!(names(&equal_figures), expected_names);
        assert_eq!(significant_figures(&equal_figures), []);
        assert_eq!(
            (
                equal_figures[0].a,
                equal_figures[0].ratio,
                equal_figures[0].difference
            ),
            (Some(1e3), Some(1.0), Some(0.0))
        );
    }

    /// Tests values on both sides of each threshold.
    #[test]
    fn differences_from_ten_percent_are_significant() {
        let found = |a, b| {
            names(&significant_figures(&compare_figures(
                &direction(a, 0),
                &direction(b, 0),
            )))
            .len()
        };
        assert_eq!((found(1_000, 1_090), found(1_000, 1_101)), (0, 2));
        assert_eq!((found(1_090, 1_000), found(1_101, 1_000)), (0, 2));
        let lost =
            |a, b| significant_figures(&compare_figures(&direction(9, a), &direction(9, b))).len();
        assert_eq!(
            (lost(0, 9), lost(0, 10)),
            (1, 1),
            "three deviations of 9 are 9"
        );
        assert_eq!((lost(0, 8), lost(100, 140), lost(100, 150)), (0, 0, 1));
        assert_eq!(lost(10_000, 10_900), 0, "beyond chance, but little");
    }

    #[test]
    fn sorts_by_weight() {
        let found = significant_figures(&compare_figures(
            &direction(1_000, 400),
            &direction(1_200, 100),
        ));
        assert_eq!(
            names(&found),
            ["retransmitted_packets", "goodput_bps", "payload_bytes"]
        );
        assert_eq!(
            (found[0].ratio, found[0].difference),
            (Some(0.25), Some(-300.0))
        );
    }

    #[test]
    fn compares_shares_by_percentage_points() {
        let limits = |path: u64| {
            let span = |by, from_ns, to_ns| LimitPeriod {
                limit: by,
                from_ns,
                to_ns,
            };
            Direction {
                limits: vec![
                    span(Limit::BottleneckBandwidth, 0, path),
                    span(Limit::Application, path, 1_000),
                ],
                ..Direction::default()
            }
        };
        assert_eq!(
            significant_figures(&compare_figures(&limits(500), &limits(540))),
            []
        );
        let found = significant_figures(&compare_figures(&limits(500), &limits(900)));
        assert_eq!(found.len(), 2);
        assert!((found[0].weight - 8.0).abs() < 1e-9);
    }
}
