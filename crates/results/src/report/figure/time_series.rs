// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of flows: a chart for each facet and metric, with a line for each row and flow. They are of one run,
//! the one nearest to the median of its cell.

use super::super::over_time::{
    chart::{Chart, Charts, Line, line_style},
    events,
    legs::nearest_run,
};
use super::grid::{Grid, grids, heading, join_nonempty, names};
use crate::{
    result::{Cell, Event, LabResult, Run},
    view::{Axis, Entry, Facet, Figure, ReferenceLine, TimeSeries, TimeSeriesId},
};
use indexmap::IndexSet;
use longhaul_report::{metric::Metric, unit::Unit};
use maud::{Markup, html};

/// Maximum number of lines with a name; if there are more, all are thin.
const NAMED_LINES_MAX: usize = 6;

pub(super) fn figure(result: &LabResult, figure: &Figure, charts: &mut Charts) -> Markup {
    let metrics: IndexSet<&str> = figure
        .time_series
        .iter()
        .map(|series| series.metric.as_str())
        .collect();
    let grids = grids(result, &figure.facets);
    let charts_drawn: Vec<Chart> = metrics
        .iter()
        .flat_map(|of| chart_row(result, figure, &grids, of))
        .collect();
    let single = charts_drawn.len() == 1;
    let add_chart = |chart: Chart| {
        charts.add(if single {
            Chart {
                title: figure.title.clone(),
                caption: figure.note.clone().unwrap_or_default(),
                ..chart
            }
        } else {
            chart
        })
    };
    html! {
        @if !single { (heading(figure)) }
        div.charts.below[!single] { @for element in charts_drawn.into_iter().map(add_chart) { (element) } }
    }
}

/// Returns a chart for each of these cells that has several flows, with a line for each flow, on one scale.
pub(crate) fn of_flows(result: &LabResult, shown: &[usize]) -> Vec<Chart> {
    let several = |cell: &&usize| goodput_series(&result.cells[**cell]).len() > 1;
    let cells: Vec<usize> = shown.iter().filter(several).copied().collect();
    let all_series = cells
        .iter()
        .flat_map(|cell| goodput_series(&result.cells[*cell]));
    let figure = Figure {
        time_series: all_series.collect::<IndexSet<_>>().into_iter().collect(),
        facets: cells
            .iter()
            .map(|cell| single_cell_facet(result, *cell))
            .collect(),
        ..Figure::default()
    };
    let grids = grids(result, &figure.facets);
    let mut charts = chart_row(result, &figure, &grids, "goodput_bps");
    for (chart, cell) in charts.iter_mut().zip(&cells) {
        chart.title = format!("Goodput of each flow, {}", result.cells[*cell].name());
    }
    charts
}

/// Returns the names of the goodput time series of each flow in the runs of a cell.
fn goodput_series(cell: &Cell) -> IndexSet<TimeSeriesId> {
    let series = cell.runs.iter().filter_map(|run| run.series.as_ref());
    let names = series.flat_map(|series| &series.time_series);
    let names = names.map(|series| series.name.clone());
    names
        .filter(|name| name.metric == "goodput_bps" && name.flow.is_some())
        .collect()
}

fn single_cell_facet(result: &LabResult, cell: usize) -> Facet {
    let axis = || Axis {
        entries: vec![Entry::default()],
        ..Axis::default()
    };
    Facet {
        shared_values: result.cells[cell].parameters.clone(),
        rows: axis(),
        columns: axis(),
        cells: vec![vec![Some(cell)]],
    }
}

/// Returns the charts of one metric for all facets, on one scale; several are side by side.
fn chart_row(result: &LabResult, figure: &Figure, grids: &[Grid<'_>], of: &str) -> Vec<Chart> {
    let mut charts: Vec<Chart> = grids
        .iter()
        .filter_map(|grid| chart(result, figure, grid, of))
        .collect();
    let reference_lines = reference_lines(result, figure, of);
    let most = charts
        .iter()
        .flat_map(|chart| &chart.lines)
        .flat_map(|line| line.values.iter().flatten().copied())
        .chain(reference_lines.iter().map(|line| line.value))
        .fold(0.0, f64::max);
    let wide = charts.len() == 1;
    for chart in &mut charts {
        chart.wide = wide;
        chart.range = (most > 0.0 && !figure.log_y).then_some([0.0, most * 1.12]);
        chart.reference_lines.clone_from(&reference_lines);
    }
    charts
}

/// Returns the reference lines of the scenario; without any, the bottleneck's rate for goodput.
fn reference_lines(result: &LabResult, figure: &Figure, of: &str) -> Vec<ReferenceLine> {
    let capacity = |(_, rate): (usize, f64)| ReferenceLine {
        value: rate,
        label: format!("bottleneck {}", Metric::of("x_bps").format(rate)),
    };
    if figure.reference_lines.is_empty() && of == "goodput_bps" {
        result.bottleneck().map(capacity).into_iter().collect()
    } else {
        figure.reference_lines.clone()
    }
}

fn chart(result: &LabResult, figure: &Figure, grid: &Grid<'_>, of: &str) -> Option<Chart> {
    let rows = names(grid.rows());
    let mut lines_found: Vec<(String, &TimeSeries)> = Vec::new();
    let mut events_by_row: Vec<(&str, &[Event])> = Vec::new();
    for (row, name) in rows.iter().enumerate() {
        let Some(run) = grid
            .row(row)
            .find_map(|cell| nearest_run(cell, result.main_metric(), has_time_series))
        else {
            continue;
        };
        let selected = figure
            .time_series
            .iter()
            .filter(|series| series.metric == of);
        lines_found.extend(
            selected.filter_map(|series| {
                Some((line_label(name, series), find_time_series(run, series)?))
            }),
        );
        events_by_row.push((name, events::of(run)));
    }
    let bin_ms = lines_found
        .iter()
        .map(|(_, series)| series.bin_ms)
        .reduce(f64::max)?
        .max(1.0);
    let (x, lines) = lines(&lines_found, bin_ms, figure.span_s);
    let metric = Metric::of(of);
    Some(Chart {
        title: join_nonempty([metric.label.as_str(), &grid.name()], ", "),
        caption: format!(
            "In bins of {}, of one run.",
            Metric::of("x_us").format(bin_ms * 1e3)
        ),
        unit: metric.unit.symbol(),
        log: figure.log_y,
        x,
        lines,
        events: events::merge(&events_by_row, bin_ms / 1e3),
        ..Chart::default()
    })
}

fn has_time_series(run: &Run) -> bool {
    run.series
        .as_ref()
        .is_some_and(|series| !series.time_series.is_empty())
}

/// Returns the label of a line: "cubic flow a".
fn line_label(row: &str, series: &TimeSeriesId) -> String {
    let label = join_nonempty([row, series.flow.as_deref().unwrap_or("")], " ");
    if label.is_empty() {
        Metric::of(&series.metric).label
    } else {
        label
    }
}

fn find_time_series<'a>(run: &'a Run, name: &TimeSeriesId) -> Option<&'a TimeSeries> {
    run.series
        .as_ref()?
        .time_series
        .iter()
        .find(|series| series.name == *name)
}

/// Returns the common time axis with the widest bins, and all lines on it, within the requested seconds.
fn lines(
    lines_found: &[(String, &TimeSeries)],
    bin_ms: f64,
    span_s: Option<[f64; 2]>,
) -> (Vec<f64>, Vec<Line>) {
    let [from, to] = span_s.unwrap_or([0.0, f64::INFINITY]);
    let bins =
        |series: &TimeSeries| (series.values.len() as f64 * series.bin_ms / bin_ms).ceil() as usize;
    let bin_count = lines_found
        .iter()
        .map(|(_, series)| bins(series))
        .max()
        .unwrap_or(0);
    let x: Vec<f64> = (0..bin_count)
        .map(|bin| bin as f64 * bin_ms / 1e3)
        .filter(|at| (from..=to).contains(at))
        .collect();
    let line = |(n, (label, series)): (usize, &(String, &TimeSeries))| {
        let (colour, dash) = line_style(n);
        // Base unit; `chart.js` adds prefixes.
        let scale = match Metric::of(&series.name.metric).unit {
            Unit::Micros => 1e-6,
            _ => 1.0,
        };
        let value = |at: &f64| value_at(series, *at).map(|value| value * scale);
        Line {
            label: label.clone(),
            colour,
            dash,
            thin: lines_found.len() > NAMED_LINES_MAX,
            values: x.iter().map(value).collect(),
            ..Line::default()
        }
    };
    let lines = lines_found.iter().enumerate().map(line).collect();
    (x, lines)
}

/// Returns the value at a time. Half a bin is added, so that rounding (0.3 / 0.1) does not select the bin before.
fn value_at(series: &TimeSeries, at_s: f64) -> Option<f64> {
    let bin = (at_s * 1e3 / series.bin_ms.max(1e-9) + 0.5) as usize;
    *series.values.get(bin)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(of: &str, bin_ms: f64, values: &[f64]) -> TimeSeries {
        let name = TimeSeriesId {
            metric: of.to_owned(),
            flow: None,
        };
        TimeSeries {
            name,
            bin_ms,
            values: values.iter().copied().map(Some).collect(),
        }
    }

    #[test]
    fn uses_the_widest_bins_for_all_lines() {
        let (fine, coarse) = (
            series("x_us", 100.0, &[1.0, 2.0, 3.0, 4.0]),
            series("x_us", 200.0, &[7.0, 8.0]),
        );
        let (x, lines) = lines(
            &[("a".to_owned(), &fine), ("b".to_owned(), &coarse)],
            200.0,
            None,
        );
        assert_eq!(x, [0.0, 0.2]);
        assert_eq!(lines[0].values, [Some(1e-6), Some(3e-6)]);
        assert_eq!(lines[1].values, [Some(7e-6), Some(8e-6)]);
    }

    #[test]
    fn draws_only_the_requested_seconds() {
        let series = series("goodput_bps", 1000.0, &[1.0, 2.0, 3.0, 4.0]);
        let (x, lines) = lines(&[(String::new(), &series)], 1000.0, Some([1.0, 2.0]));
        assert_eq!(
            (x.as_slice(), lines[0].values.as_slice()),
            (&[1.0, 2.0][..], &[Some(2.0), Some(3.0)][..])
        );
    }
}
