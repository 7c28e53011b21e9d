// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of the congestion window and round-trip time of each leg, from the run nearest to its cell's median.
//! The y axis is logarithmic, because a short and a long leg may differ by a factor of a hundred. All cells have
//! the same axis.

use super::{
    chart::{Chart, Line, line_style},
    events, goodput,
};
use crate::result::{Cell, LabResult, LegSeries, Run};
use longhaul_report::metric::Metric;

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
    LEG_METRICS
        .iter()
        .flat_map(|metric| row(metric, &runs))
        .collect()
}

/// Returns the charts of one metric for all cells, on one scale.
fn row(metric: &LegMetric, runs: &[(&Cell, &Run)]) -> Vec<Chart> {
    let all = runs
        .iter()
        .flat_map(|(_, run)| legs(run))
        .flat_map(metric.values);
    let positive: Vec<f64> = all.filter(|x| *x > 0.0).collect();
    let draw = |(cell, run): &(&Cell, &Run)| Chart {
        range: Some(decades(&positive)),
        ..chart(metric, cell, run)
    };
    if positive.is_empty() {
        Vec::new()
    } else {
        runs.iter().map(draw).collect()
    }
}

/// Returns the range of whole decades that contains the positive `values`.
fn decades(values: &[f64]) -> [f64; 2] {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    // Parsed from text, a power of ten is exact: 10f64.powi(-4) is not always 1e-4.
    let power = |exponent: f64| format!("1e{exponent}").parse().unwrap_or(f64::NAN);
    [
        power(low.log10().floor()),
        power(high.log10().floor() + 1.0),
    ]
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
    let samples = legs(run).iter().flat_map(|leg| leg.at_s.iter().copied());
    let mut x: Vec<f64> = samples.chain([0.0]).collect();
    x.sort_by(f64::total_cmp);
    x.dedup();
    let lines = legs(run)
        .iter()
        .enumerate()
        .map(|(n, leg)| line(metric, leg, n, &x))
        .collect();
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
        x,
        lines,
        events: events::of(run).to_vec(),
        ..Chart::default()
    }
}

/// Returns the line of a leg at the times `x`; a value is `None` where there is no positive sample.
fn line(metric: &LegMetric, leg: &LegSeries, n: usize, x: &[f64]) -> Line {
    let mut samples = leg.at_s.iter().zip((metric.values)(leg)).peekable();
    let values = x
        .iter()
        .map(|time| {
            let due = std::iter::from_fn(|| samples.next_if(|(at, _)| *at <= time));
            due.last().map(|(_, value)| value).filter(|v| *v > 0.0)
        })
        .collect();
    let (colour, dash) = line_style(n);
    Line {
        label: leg.name.clone(),
        colour,
        dash,
        values,
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
    fn merges_sample_times_of_all_legs() {
        let line = line(
            &LEG_METRICS[1],
            &leg_series(&[0.1, 0.3], &[200.0, 300.0]),
            0,
            &[0.1, 0.2, 0.3],
        );
        assert_eq!(line.values, [Some(0.0002), None, Some(0.0003)]);
    }

    #[test]
    fn uses_the_last_of_simultaneous_samples() {
        let line = line(
            &LEG_METRICS[1],
            &leg_series(&[0.1, 0.1, 0.2], &[1e3, 2e3, 3e3]),
            0,
            &[0.1, 0.2],
        );
        assert_eq!(line.values, [Some(0.002), Some(0.003)]);
    }

    #[test]
    fn axis_has_whole_decades() {
        assert_eq!(decades(&[0.0004, 0.027]), [1e-4, 1e-1]);
        assert_eq!(decades(&[10.0]), [10.0, 100.0]);
    }

    #[test]
    fn omits_zero_on_a_logarithmic_axis() {
        let line = line(&LEG_METRICS[1], &leg_series(&[0.1], &[0.0]), 0, &[0.1]);
        assert_eq!(line.values, [None]);
    }
}
