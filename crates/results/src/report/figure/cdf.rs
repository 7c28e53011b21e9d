// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cumulative distributions: for each row the share of its values up to a value. The values are those of a metric over
//! all runs, or of a time series over all its bins.

use super::{
    bars::row_label,
    grid::{Grid, grids, join_nonempty, names},
};
use crate::{
    result::{Cell, LabResult},
    view::{Figure, TimeSeriesId},
};
use longhaul_report::{
    chart::{Axis, Chart, Line, LineStyle, Positions},
    metric::Metric,
    table::table,
};
use longhaul_stats::sample;
use maud::{Markup, html};

/// Maximum number of steps of a line; more cannot be distinguished on a screen.
const STEPS_MAX: usize = 400;
/// Quantiles in the table.
const QUANTILES: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

/// Returns a chart for each facet that has a value.
pub(super) fn charts(result: &LabResult, figure: &Figure) -> Vec<Chart> {
    let metric = Metric::of(metric_name(figure));
    let grids = grids(result, &figure.facets);
    let chart = |grid: &Grid<'_>| {
        let samples = samples(figure, grid);
        let label = join_nonempty(["Quantiles", &figure.title, &grid.name()], " · ");
        Chart {
            title: grid.name(),
            shared_axes: figure.name.clone(),
            table: Some(("Quantiles", quantiles(&label, &samples, &metric))),
            ..chart(&samples, figure.log_x, &metric)
        }
    };
    grids.iter().map(chart).collect()
}

/// Returns the name of the drawn metric, which ends in its unit.
fn metric_name(figure: &Figure) -> &str {
    let series_id = figure
        .time_series
        .first()
        .map(|series_id| series_id.metric.as_str());
    series_id
        .or(figure.metrics.first().map(String::as_str))
        .unwrap_or("")
}

/// Values of one row, sorted; never empty.
struct Sample {
    name: String,
    values: Vec<f64>,
}

fn samples(figure: &Figure, grid: &Grid<'_>) -> Vec<Sample> {
    let rows = names(grid.rows());
    let mut all = Vec::new();
    for (row, name) in rows.iter().enumerate() {
        for metric in &figure.metrics {
            let name = row_label(name, metric, figure.metrics.len() > 1);
            all.extend(Sample::new(
                name,
                grid.row(row).flat_map(|cell| run_values(cell, metric)),
            ));
        }
        for series_id in &figure.time_series {
            let flow = series_id.flow.as_deref().unwrap_or("");
            let name = join_nonempty([name.as_str(), flow], " ");
            all.extend(Sample::new(
                name,
                grid.row(row).flat_map(|cell| bin_values(cell, series_id)),
            ));
        }
    }
    all
}

fn run_values(cell: &Cell, metric: &str) -> impl Iterator<Item = f64> {
    cell.successful_runs()
        .filter_map(move |run| run.metrics.get(metric).copied())
}

fn bin_values(cell: &Cell, series_id: &TimeSeriesId) -> impl Iterator<Item = f64> {
    let series = cell.successful_runs().filter_map(|run| run.series.as_ref());
    series
        .flat_map(|series| &series.time_series)
        .filter(move |found| found.name == *series_id)
        .flat_map(|found| found.values.iter().flatten().copied())
}

impl Sample {
    fn new(name: String, values: impl Iterator<Item = f64>) -> Option<Self> {
        let values = sample::sorted(values);
        (!values.is_empty()).then_some(Self { name, values })
    }

    /// Returns a step function: the share, in percent, rises at each value by its weight. A logarithmic axis has no
    /// place for values that are not above zero.
    fn steps(&self, log: bool, metric: &Metric) -> Line {
        let steps = self.values.len().min(STEPS_MAX);
        let share = |step: usize| step as f64 / steps as f64;
        let rise = |step| {
            Some((
                sample::quantile_by_rank(&self.values, share(step))?,
                share(step),
            ))
        };
        let mut points: Vec<(f64, f64)> = (1..=steps).filter_map(rise).collect();
        points.retain(|(value, _)| !log || *value > 0.0);
        Line {
            label: self.name.clone(),
            stepped: true,
            x: Positions::At(
                points
                    .iter()
                    .map(|(value, _)| value * metric.unit.factor())
                    .collect(),
            ),
            values: points
                .iter()
                .map(|(_, share)| Some(share * 100.0))
                .collect(),
            ..Line::default()
        }
    }
}

fn chart(samples: &[Sample], log: bool, metric: &Metric) -> Chart {
    let line = |(n, sample): (usize, &Sample)| Line {
        style: LineStyle::nth(n),
        ..sample.steps(log, metric)
    };
    Chart {
        unit: "%",
        y_name: "CDF".to_owned(),
        wide: true,
        names_at_ends: true,
        x_axis: Some(Axis {
            name: metric.label.clone(),
            unit: metric.unit.symbol(),
            log,
            ..Axis::default()
        }),
        lines: samples.iter().enumerate().map(line).collect(),
        ..Chart::default()
    }
}

fn quantiles(label: &str, samples: &[Sample], metric: &Metric) -> Markup {
    const COLUMNS: [&str; 7] = [
        "Sample", "Values", "Minimum", "10 %", "Median", "90 %", "Maximum",
    ];
    let printed = |values: &[f64], share| Some(metric.format(sample::quantile(values, share)?));
    let row = |sample: &Sample| {
        html! { tr {
            th scope="row" { (sample.name) }
            td { (sample.values.len()) }
            @for share in QUANTILES { td { (printed(&sample.values, share).unwrap_or_default()) } }
        } }
    };
    table(label, COLUMNS, samples.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new("s".to_owned(), values.iter().copied()).unwrap()
    }

    #[test]
    fn table_has_the_interpolated_median() {
        let samples = [sample(&[4.0, 1.0, 2.0, 3.0])];
        let page = quantiles("", &samples, &Metric::of("download_s")).into_string();
        assert!(page.contains("<td>2.5 s</td>"), "{page}");
    }

    #[test]
    fn steps_end_at_one_and_are_limited() {
        let many = sample(&(0..10_000).map(f64::from).collect::<Vec<_>>());
        let line = many.steps(false, &Metric::of("x_s"));
        assert_eq!(line.values.len(), STEPS_MAX);
        assert_eq!(line.values[STEPS_MAX - 1], Some(100.0));
        let Positions::At(x) = line.x else {
            panic!("{line:?}")
        };
        assert_eq!(x[STEPS_MAX - 1], 9999.0);
        assert!(Sample::new(String::new(), [f64::NAN].into_iter()).is_none());
    }
}
