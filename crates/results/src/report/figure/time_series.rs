// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of flows: a chart for each facet and metric, with a line for each row and flow. They are of one run,
//! the one nearest to the median of its cell.

use super::super::over_time::{events, legs::nearest_run};
use super::grid::{Grid, grids, join_nonempty, names};
use crate::{
    result::{Cell, Event, LabResult, Run},
    view::{Axis, Entry, Facet, Figure, ReferenceLine, TimeSeries, TimeSeriesId},
};
use indexmap::IndexSet;
use longhaul_report::{
    chart::{Chart, Line, LineStyle, Positions},
    metric::Metric,
};

/// Maximum number of lines with a name; if there are more, all are thin.
const NAMED_LINES_MAX: usize = 6;

/// Returns the charts of a figure: a row of facets for each metric.
pub(super) fn charts(result: &LabResult, figure: &Figure) -> Vec<Chart> {
    let metrics: IndexSet<&str> = figure
        .time_series
        .iter()
        .map(|series| series.metric.as_str())
        .collect();
    let grids = grids(result, &figure.facets);
    metrics
        .iter()
        .flat_map(|of| chart_row(result, figure, &grids, of))
        .collect()
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
    let wide = charts.len() == 1;
    for chart in &mut charts {
        chart.wide = wide;
        chart.shared_axes = format!("{} {of}", figure.name);
        chart.reference_lines = reference_lines(result, figure, of);
    }
    charts
}

/// Returns the reference lines of the scenario; without any, the bottleneck's rate for goodput.
fn reference_lines(result: &LabResult, figure: &Figure, of: &str) -> Vec<ReferenceLine> {
    match result.bottleneck() {
        Some((_, rate_bps)) if figure.reference_lines.is_empty() && of == "goodput_bps" => {
            vec![ReferenceLine::bottleneck(rate_bps)]
        }
        _ => scaled_reference_lines(figure, of),
    }
}

/// Returns the reference lines of the scenario, in the unit of the chart.
pub(super) fn scaled_reference_lines(figure: &Figure, of: &str) -> Vec<ReferenceLine> {
    let scaled = |line: &ReferenceLine| ReferenceLine {
        value: line.value * Metric::of(of).unit.factor(),
        label: line.label.clone(),
    };
    figure.reference_lines.iter().map(scaled).collect()
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
    let thin = lines_found.len() > NAMED_LINES_MAX;
    let line = |(n, (label, series)): (usize, (String, &TimeSeries))| Line {
        label,
        style: LineStyle::nth(n),
        thin,
        ..line(series, figure.span_s)
    };
    let metric = Metric::of(of);
    Some(Chart {
        title: join_nonempty([metric.label.as_str(), &grid.name()], ", "),
        caption: format!(
            "In bins of {}, of one run.",
            Metric::of("x_us").format(bin_ms * 1e3)
        ),
        unit: metric.unit.symbol(),
        log: figure.log_y,
        lines: lines_found.into_iter().enumerate().map(line).collect(),
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

/// Returns the line of a series within the requested seconds, in the unit of the chart.
fn line(series: &TimeSeries, span_s: Option<[f64; 2]>) -> Line {
    let step = series.bin_ms / 1e3;
    let [from, to] = span_s.unwrap_or([0.0, f64::INFINITY]);
    // Rounding (0.3 / 0.1) must not select the bin before.
    let (first, last) = (
        (from / step - 1e-6).ceil() as usize,
        (to / step + 1e-6) as usize,
    );
    let factor = Metric::of(&series.name.metric).unit.factor();
    let values = series
        .values
        .iter()
        .map(|value| value.map(|value| value * factor));
    Line {
        x: Positions::Bins {
            from: first as f64 * step,
            step,
        },
        values: values.take(last.saturating_add(1)).skip(first).collect(),
        ..Line::default()
    }
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
    fn line_is_in_the_unit_of_the_chart() {
        let line = line(&series("x_us", 200.0, &[7.0, 8.0]), None);
        assert_eq!(line.values, [Some(7e-6), Some(8e-6)]);
    }

    #[test]
    fn draws_only_the_requested_seconds() {
        let series = series("goodput_bps", 1000.0, &[1.0, 2.0, 3.0, 4.0]);
        let line = line(&series, Some([1.0, 2.0]));
        let x = Positions::Bins {
            from: 1.0,
            step: 1.0,
        };
        assert_eq!((line.x, line.values), (x, vec![Some(2.0), Some(3.0)]));
    }
}
