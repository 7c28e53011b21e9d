// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cumulative distributions: for each row the share of its values up to a value. The values are those of a metric over
//! all runs, or of a time series over all its bins.

use super::{
    bars::row_label,
    grid::{Grid, grids, heading, join_nonempty, names},
};
use crate::{
    result::{Cell, LabResult},
    view::{Figure, TimeSeriesId},
};
use longhaul_report::metric::{Metric, format_percent};
use longhaul_report::{
    lines::{Axis, LineStyle, Lines, Point, Series, Tick},
    scale::Scale,
    table::table,
};
use longhaul_stats::sample;
use maud::{Markup, html};

/// Maximum number of steps of a line; more cannot be distinguished on a screen.
const STEPS_MAX: usize = 400;
/// Quantiles in the table.
const QUANTILES: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let facets: Vec<(String, Vec<Sample>)> = grids(result, &figure.facets)
        .iter()
        .map(|grid| (grid.name(), samples(figure, grid)))
        .collect();
    let all = facets
        .iter()
        .flat_map(|(_, samples)| samples)
        .flat_map(|sample| sample.values.iter().copied());
    let scale = if figure.log_x {
        Scale::log(all)
    } else {
        Scale::tight(all)
    };
    let metric = Metric::of(metric_name(figure));
    html! {
        figure.chart.wide {
            (heading(figure))
            @for (name, samples) in &facets {
                @if !name.is_empty() { h4 { (name) } }
                (render(&line_chart(figure, samples, scale, &metric), samples, &metric))
            }
        }
    }
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

    /// Returns the points of a step function: the share rises at each value by its weight.
    fn steps(&self, scale: Scale) -> Vec<Point> {
        let count = self.values.len();
        let steps = count.min(STEPS_MAX);
        let mut points = Vec::with_capacity(2 * steps);
        for step in 0..steps {
            let (before, after) = (step as f64 / steps as f64, (step + 1) as f64 / steps as f64);
            let x = sample::quantile_by_rank(&self.values, after).map_or(f64::NAN, |x| scale.at(x));
            let point = |y| Point {
                x,
                y,
                ..Point::default()
            };
            points.extend([point(before), point(after)]);
        }
        points.retain(|point| point.x.is_finite());
        points
    }
}

fn line_chart(figure: &Figure, samples: &[Sample], scale: Scale, metric: &Metric) -> Lines {
    let across = |value: f64| Tick {
        at: scale.at(value),
        text: metric.format(value),
    };
    let up = |share: f64| Tick {
        at: share,
        text: format_percent(share),
    };
    let series = |(n, sample): (usize, &Sample)| Series {
        name: sample.name.clone(),
        style: LineStyle::Measured(n),
        points: sample.steps(scale),
        marked: false,
    };
    Lines {
        title: figure.title.clone(),
        x: Axis {
            name: metric.label.clone(),
            ticks: scale.ticks().into_iter().map(across).collect(),
        },
        y: Axis {
            name: "CDF".to_owned(),
            ticks: [0.0, 0.25, 0.5, 0.75, 1.0].map(up).to_vec(),
        },
        series: samples.iter().enumerate().map(series).collect(),
        reference_lines: Vec::new(),
    }
}

/// Returns the lines, and a table of quantiles below them.
fn render(lines: &Lines, samples: &[Sample], metric: &Metric) -> Markup {
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
    let rows = samples.iter().map(row);
    lines.render_with_table(&table(&lines.data_label(), COLUMNS, rows))
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
        let drawn = render(&Lines::default(), &samples, &Metric::of("download_s"));
        let page = drawn.into_string();
        assert!(page.contains("<td>2.5 s</td>"), "{page}");
    }

    #[test]
    fn steps_end_at_one_and_are_limited() {
        let many = sample(&(0..10_000).map(f64::from).collect::<Vec<_>>());
        let points = many.steps(Scale::tight([0.0, 9999.0]));
        assert_eq!(points.len(), 2 * STEPS_MAX);
        assert_eq!((points[0].y, points[2 * STEPS_MAX - 1].y), (0.0, 1.0));
        assert_eq!(points[2 * STEPS_MAX - 1].x, 1.0);
        assert!(Sample::new(String::new(), [f64::NAN].into_iter()).is_none());
    }
}
