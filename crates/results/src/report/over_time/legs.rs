// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of the congestion window and round-trip time of each leg, from the run nearest to its cell's median.
//! The y axis is logarithmic, because a short and a long leg may differ by a factor of a hundred. All cells have
//! the same axes.

use super::{events, goodput};
use crate::result::{Cell, LabResult, LegSeries, Run};
use longhaul_report::{
    chart::{Chart, Line, LineStyle, Positions},
    metric::Metric,
};

/// Metric of a leg, drawn as one chart for each cell.
struct LegMetric {
    title: &'static str,
    caption: &'static str,
    unit: &'static str,
    /// Returns the values in `unit`.
    values: fn(&LegSeries) -> Vec<f64>,
}

const LEG_METRICS: [LegMetric; 2] = [
    LegMetric {
        title: "Congestion window",
        caption: "Congestion window of each sender (TCP_INFO), one run.",
        unit: "B",
        values: |leg| leg.cwnd_bytes.clone(),
    },
    LegMetric {
        title: "Round-trip time",
        caption: "Smoothed RTT that each sender saw (TCP_INFO), one run.",
        unit: "s",
        values: |leg| leg.rtt_us.iter().map(|us| us / 1e6).collect(),
    },
];

/// Returns two charts for each cell, or none if no run has samples of its legs.
pub(crate) fn charts(result: &LabResult) -> Vec<Chart> {
    let runs: Vec<(&Cell, &Run)> = goodput::cells_to_draw(result)
        .into_iter()
        .filter_map(|n| {
            Some((
                &result.cells[n],
                nearest_to_median(&result.cells[n], result.main_metric())?,
            ))
        })
        .collect();
    let charts_of = |metric| runs.iter().map(move |(cell, run)| chart(metric, cell, run));
    LEG_METRICS
        .iter()
        .flat_map(charts_of)
        .filter(Chart::has_values)
        .collect()
}

/// Returns the run whose main metric is nearest to the median, among those with samples of legs.
pub(super) fn nearest_to_median<'a>(cell: &'a Cell, metric: Option<&str>) -> Option<&'a Run> {
    nearest_run(cell, metric, |run| !legs(run).is_empty())
}

/// Returns the run whose `metric` is nearest to the median, among those that did not fail and that `has` selects.
pub(crate) fn nearest_run<'a>(
    cell: &'a Cell,
    metric: Option<&str>,
    has: impl Fn(&Run) -> bool,
) -> Option<&'a Run> {
    let distance = |run: &&Run| {
        let found = metric.and_then(|name| Some((run.metrics.get(name)?, cell.metrics.get(name)?)));
        found.map_or(0.0, |(value, summary)| (value - summary.median).abs())
    };
    let candidates = cell.successful_runs().filter(|run| has(run));
    candidates.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn legs(run: &Run) -> &[LegSeries] {
    run.series.as_ref().map_or(&[], |series| &series.legs)
}

fn chart(metric: &LegMetric, cell: &Cell, run: &Run) -> Chart {
    let lines = legs(run).iter().enumerate();
    Chart {
        title: format!(
            "{}, {}{}",
            metric.title,
            cell.name(),
            describe_maximum(metric, legs(run))
        ),
        caption: metric.caption.to_owned(),
        unit: metric.unit,
        log: true,
        shared_axes: metric.title.to_owned(),
        lines: lines.map(|(n, leg)| line(metric, leg, n)).collect(),
        events: events::of(run).to_vec(),
        ..Chart::default()
    }
}

/// Returns the line of a leg: its positive samples, of simultaneous ones the last. It begins at 0 s, as the run does.
fn line(metric: &LegMetric, leg: &LegSeries, n: usize) -> Line {
    let samples = leg.at_s.iter().copied().zip((metric.values)(leg));
    let positive = samples.map(|(at, value)| (at, Some(value).filter(|v| *v > 0.0)));
    let mut samples: Vec<(f64, Option<f64>)> = [(0.0, None)].into_iter().chain(positive).collect();
    samples.reverse();
    samples.dedup_by_key(|(at, _)| *at);
    samples.reverse();
    Line {
        label: leg.name.clone(),
        style: LineStyle::nth(n),
        x: Positions::At(samples.iter().map(|(at, _)| *at).collect()),
        values: samples.iter().map(|(_, value)| *value).collect(),
        ..Line::default()
    }
}

/// Describes the maximum: ": maximum 31 ms, on relay2–relay1".
fn describe_maximum(metric: &LegMetric, legs: &[LegSeries]) -> String {
    let peak = |leg: &LegSeries| (metric.values)(leg).into_iter().fold(0.0, f64::max);
    let Some(top) = legs.iter().max_by(|a, b| peak(a).total_cmp(&peak(b))) else {
        return String::new();
    };
    let metric = Metric::of(if metric.unit == "B" { "x_bytes" } else { "x_s" });
    format!(": maximum {}, on {}", metric.format(peak(top)), top.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg_series(at_s: &[f64], rtt_us: &[f64]) -> LegSeries {
        LegSeries {
            at_s: at_s.to_vec(),
            rtt_us: rtt_us.to_vec(),
            ..LegSeries::default()
        }
    }

    #[test]
    fn uses_the_last_of_simultaneous_samples() {
        let line = line(
            &LEG_METRICS[1],
            &leg_series(&[0.1, 0.1, 0.2], &[1e3, 2e3, 3e3]),
            0,
        );
        assert_eq!(line.x, Positions::At(vec![0.0, 0.1, 0.2]));
        assert_eq!(line.values, [None, Some(0.002), Some(0.003)]);
    }

    #[test]
    fn omits_zero_on_a_logarithmic_axis() {
        let line = line(&LEG_METRICS[1], &leg_series(&[0.1], &[0.0]), 0);
        assert_eq!(line.values, [None, None]);
    }
}
