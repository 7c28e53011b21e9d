// SPDX-License-Identifier: MIT OR Apache-2.0
//! `diff.json`: both sides' figures, one below the other. A figure's name ends in its unit, as in the
//! lab's results.

use super::side::Side;
use crate::tap::report::SCHEMA;
use model::tap::record::{Direction, Limit, Limited, PhaseKind};
use serde::Serialize;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// As that of `result.json`.
    pub(super) schema: u32,
    pub(super) a: Named,
    pub(super) b: Named,
    pub(super) figures: Vec<Figure>,
}

/// Which direction of which flow of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Named {
    /// As on the command line.
    pub(super) source: String,
    /// The flow's number there.
    pub(super) flow: u64,
    /// Both ends, from and to, for people.
    pub(super) name: String,
    /// What limited it.
    pub(super) verdict: String,
}

/// One quantity of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figure {
    /// Ends in the unit: `goodput_bps`.
    pub(super) name: &'static str,
    /// Absent where it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) a: Option<f64>,
    /// Likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) b: Option<f64>,
    /// `b / a`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
}

impl Comparison {
    /// Figures that neither has are left out.
    pub(super) fn of(a: &Side<'_>, b: &Side<'_>) -> Self {
        let figure = |(name, value): (&'static str, Measure)| {
            Figure::of(name, value(a.direction()), value(b.direction()))
        };
        Self {
            schema: SCHEMA,
            a: Named::of(a),
            b: Named::of(b),
            figures: MEASURES.into_iter().filter_map(figure).collect(),
        }
    }
}

impl Named {
    fn of(side: &Side<'_>) -> Self {
        Self {
            source: side.source.clone(),
            flow: side.flow.number,
            name: side.name(),
            verdict: side.direction().verdict.clone(),
        }
    }
}

impl Figure {
    fn of(name: &'static str, a: Option<f64>, b: Option<f64>) -> Option<Self> {
        let ratio = a.zip(b).and_then(|(a, b)| (a != 0.0).then(|| b / a));
        let nothing = a.unwrap_or(0.0) == 0.0 && b.unwrap_or(0.0) == 0.0;
        (!nothing).then_some(Self { name, a, b, ratio })
    }
}

type Measure = fn(&Direction) -> Option<f64>;

/// What is compared, in this order. What neither side has is left out.
const MEASURES: [(&str, Measure); 30] = [
    ("goodput_bps", goodput),
    ("payload_bytes", |d| number(d.data.unique_bytes)),
    ("lasted_s", |d| lasted_ns(d).map(|ns| ns / 1e9)),
    ("rtt_least_s", |d| rtt(d, |found| found.min)),
    ("rtt_median_s", |d| rtt(d, |found| found.p50)),
    ("rtt_99_percent_s", |d| rtt(d, |found| found.p99)),
    ("in_flight_most_bytes", |d| number(d.in_flight_max_bytes)),
    ("window_least_bytes", |d| number(d.acks.window_min_bytes)),
    ("retransmitted_packets", |d| number(d.retransmissions())),
    ("retransmitted_bytes", |d| {
        number(d.data.retransmitted_bytes)
    }),
    ("timeouts", |d| number(d.data.timeout_retransmissions)),
    ("pure_acks", |d| number(d.acks.pure)),
    ("duplicate_acks", |d| number(d.acks.duplicates)),
    ("packets_per_ack_ratio", |d| {
        (d.packets_per_ack.count > 0).then_some(d.packets_per_ack.mean)
    }),
    ("ack_diff_median_bytes", |d| {
        sampled(d.ack_diff.count, d.ack_diff.p50)
    }),
    ("ack_diff_99_percent_bytes", |d| {
        sampled(d.ack_diff.count, d.ack_diff.p99)
    }),
    ("ack_diff_most_bytes", |d| {
        sampled(d.ack_diff.count, d.ack_diff.max)
    }),
    ("gap_median_s", |d| {
        sampled(d.gaps.count, d.gaps.p50).map(|ns| ns / 1e9)
    }),
    ("gap_99_percent_s", |d| {
        sampled(d.gaps.count, d.gaps.p99).map(|ns| ns / 1e9)
    }),
    ("burst_median_segments", |d| {
        sampled(d.bursts.count, d.bursts.p50)
    }),
    ("burst_longest_segments", |d| {
        sampled(d.bursts.count, d.bursts.max)
    }),
    ("ramp_up_s", |d| phase_s(d, PhaseKind::RampUp)),
    ("peak_s", |d| phase_s(d, PhaseKind::Peak)),
    ("steady_s", |d| phase_s(d, PhaseKind::Steady)),
    ("recovery_s", |d| phase_s(d, PhaseKind::Recovery)),
    ("limited_by_application_ratio", |d| {
        limited(d, Limit::Application)
    }),
    ("limited_by_receive_window_ratio", |d| {
        limited(d, Limit::ReceiveWindow)
    }),
    ("limited_by_congestion_window_ratio", |d| {
        limited(d, Limit::CongestionWindow)
    }),
    ("limited_by_path_rate_ratio", |d| {
        limited(d, Limit::PathRate)
    }),
    ("limited_by_ack_stream_ratio", |d| {
        limited(d, Limit::AckStream)
    }),
];

#[expect(clippy::unnecessary_wraps, reason = "a measure that is always there")]
fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn sampled(samples: u64, value: u64) -> Option<f64> {
    (samples > 0).then_some(value as f64)
}

fn lasted_ns(direction: &Direction) -> Option<f64> {
    let (first, last) = direction
        .data
        .first_data_ns
        .zip(direction.data.last_data_ns)?;
    Some(last.saturating_sub(first) as f64).filter(|ns| *ns > 0.0)
}

fn goodput(direction: &Direction) -> Option<f64> {
    Some(direction.data.unique_bytes as f64 * 8e9 / lasted_ns(direction)?)
}

fn rtt(direction: &Direction, of: fn(&model::tap::record::Distribution) -> u64) -> Option<f64> {
    let found = direction.round_trips();
    sampled(found.count, of(found)).map(|ns| ns / 1e9)
}

fn phase_s(direction: &Direction, kind: PhaseKind) -> Option<f64> {
    let same = direction.phases.iter().filter(|phase| phase.kind == kind);
    let lengths = same.map(|phase| phase.to_ns.saturating_sub(phase.from_ns));
    Some(lengths.sum::<u64>() as f64 / 1e9)
}

/// Share of the time for which anything limited it.
fn limited(direction: &Direction, by: Limit) -> Option<f64> {
    let length = |limited: &Limited| limited.to_ns.saturating_sub(limited.from_ns);
    let all: u64 = direction.limits.iter().map(length).sum();
    let same = direction.limits.iter().filter(|limited| limited.by == by);
    (all > 0).then(|| same.map(length).sum::<u64>() as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::report::made_up;
    use std::path::Path;

    fn compared(change: impl Fn(&mut Direction)) -> Comparison {
        let a = made_up::finished();
        let mut b = a.clone();
        change(&mut b.analysis.flows[0].upload);
        let side = |path, of| Side::of(Path::new(path), of, None).unwrap();
        Comparison::of(&side("a", &a), &side("b", &b))
    }

    fn figure(comparison: &Comparison, name: &str) -> Figure {
        let mut figures = comparison.figures.iter();
        figures.find(|figure| figure.name == name).unwrap().clone()
    }

    #[test]
    fn twice_the_bytes_in_the_same_time_is_twice_the_goodput() {
        let found = compared(|upload| upload.data.unique_bytes *= 2);
        assert_eq!(figure(&found, "goodput_bps").ratio, Some(2.0));
        assert_eq!(figure(&found, "lasted_s").ratio, Some(1.0));
        assert_eq!(
            figure(&found, "limited_by_ack_stream_ratio").a,
            Some(100.0 / 3750.0)
        );
    }

    #[test]
    fn what_neither_has_is_left_out_and_what_one_lacks_has_no_ratio() {
        let found = compared(|upload| upload.rtt_by_timestamps.count = 0);
        assert!(
            found
                .figures
                .iter()
                .all(|figure| figure.name != "limited_by_application_ratio")
        );
        let rtt = figure(
            &compared(|upload| {
                upload.rtt_by_timestamps.count = 0;
                upload.rtt_by_pairs.count = 0;
            }),
            "rtt_median_s",
        );
        assert_eq!((rtt.a, rtt.b, rtt.ratio), (Some(0.2), None, None));
        // The other kind of samples is taken where there are more of them.
        assert_eq!(figure(&found, "rtt_median_s").b, Some(0.2001));
    }

    #[test]
    fn a_flow_that_is_not_there_is_refused() {
        let finished = made_up::finished();
        let error = Side::of(Path::new("out"), &finished, Some(99))
            .err()
            .unwrap();
        assert!(error.to_string().starts_with("out: no flow 99"), "{error}");
        let second = Side::of(Path::new("out"), &finished, Some(7)).unwrap();
        assert_eq!(second.flow.number, 7);
    }
}
