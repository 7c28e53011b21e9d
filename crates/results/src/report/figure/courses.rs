// SPDX-License-Identifier: MIT OR Apache-2.0
//! How flows went over time: a chart for each panel and quantity, in it a line for each row and flow,
//! all of one run, the one nearest to the median of its cell.

use super::super::over_time::{
    chart::{Chart, Charts, Line, line_style},
    events,
    legs::nearest,
};
use super::cells::{Grid, filled, grids, heading, names};
use crate::{
    result::{Cell, Event, LabResult, Run},
    view::{Axis, Course, CourseName, Entry, Figure, Limit, Panel},
};
use indexmap::IndexSet;
use longhaul_report::{metric::Metric, unit::Unit};
use maud::{Markup, html};

/// Lines with a name each; more are drawn thin, to be seen as a whole.
const NAMED_MAX: usize = 6;

pub(super) fn figure(result: &LabResult, figure: &Figure, charts: &mut Charts) -> Markup {
    let quantities: IndexSet<&str> = figure
        .courses
        .iter()
        .map(|course| course.of.as_str())
        .collect();
    let grids = grids(result, &figure.panels);
    let drawn: Vec<Chart> = quantities
        .iter()
        .flat_map(|of| row(result, figure, &grids, of))
        .collect();
    let single = drawn.len() == 1;
    let place = |chart: Chart| {
        charts.place(match single {
            true => Chart {
                title: figure.title.clone(),
                caption: figure.note.clone().unwrap_or_default(),
                ..chart
            },
            false => chart,
        })
    };
    html! {
        @if !single { (heading(figure)) }
        div.charts.below[!single] { @for place in drawn.into_iter().map(place) { (place) } }
    }
}

/// A chart for each of these cells that has several flows, with a line for each, on one scale.
pub(crate) fn of_flows(result: &LabResult, shown: &[usize]) -> Vec<Chart> {
    let several = |cell: &&usize| courses_of(&result.cells[**cell]).len() > 1;
    let cells: Vec<usize> = shown.iter().filter(several).copied().collect();
    let all = cells
        .iter()
        .flat_map(|cell| courses_of(&result.cells[*cell]));
    let figure = Figure {
        courses: all.collect::<IndexSet<_>>().into_iter().collect(),
        panels: cells.iter().map(|cell| alone(result, *cell)).collect(),
        ..Figure::default()
    };
    let grids = grids(result, &figure.panels);
    let mut charts = row(result, &figure, &grids, "goodput_bps");
    for (chart, cell) in charts.iter_mut().zip(&cells) {
        chart.title = format!("Goodput of each flow, {}", result.cells[*cell].name());
    }
    charts
}

/// The goodput of each flow that a run of the cell has as a course.
fn courses_of(cell: &Cell) -> IndexSet<CourseName> {
    let series = cell.runs.iter().filter_map(|run| run.series.as_ref());
    let names = series.flat_map(|series| &series.courses);
    let names = names.map(|course| course.name.clone());
    names
        .filter(|name| name.of == "goodput_bps" && name.flow.is_some())
        .collect()
}

fn alone(result: &LabResult, cell: usize) -> Panel {
    let axis = || Axis {
        entries: vec![Entry::default()],
        ..Axis::default()
    };
    Panel {
        of: result.cells[cell].vary.clone(),
        rows: axis(),
        columns: axis(),
        cells: vec![vec![Some(cell)]],
    }
}

/// One quantity of all panels, on one scale; several stand beside each other.
fn row(result: &LabResult, figure: &Figure, grids: &[Grid<'_>], of: &str) -> Vec<Chart> {
    let mut charts: Vec<Chart> = grids
        .iter()
        .filter_map(|grid| chart(result, figure, grid, of))
        .collect();
    let limits = limits(result, figure, of);
    let most = charts
        .iter()
        .flat_map(|chart| &chart.lines)
        .flat_map(|line| line.values.iter().flatten().copied())
        .chain(limits.iter().map(|limit| limit.value))
        .fold(0.0, f64::max);
    let wide = charts.len() == 1;
    for chart in &mut charts {
        chart.wide = wide;
        chart.range = (most > 0.0 && !figure.log_y).then_some([0.0, most * 1.12]);
        chart.limits.clone_from(&limits);
    }
    charts
}

/// Those that the scenario gives; of goodput else what the slowest link carries.
fn limits(result: &LabResult, figure: &Figure, of: &str) -> Vec<Limit> {
    let capacity = |(_, rate): (usize, f64)| Limit {
        value: rate,
        label: format!("link {}", Metric::of("x_bps").print(rate)),
    };
    match figure.limits.is_empty() {
        true if of == "goodput_bps" => result.bottleneck().map(capacity).into_iter().collect(),
        _ => figure.limits.clone(),
    }
}

fn chart(result: &LabResult, figure: &Figure, grid: &Grid<'_>, of: &str) -> Option<Chart> {
    let rows = names(grid.rows());
    let mut found: Vec<(String, &Course)> = Vec::new();
    let mut met: Vec<(&str, &[Event])> = Vec::new();
    for (row, name) in rows.iter().enumerate() {
        let Some(run) = grid
            .row(row)
            .find_map(|cell| nearest(cell, result.main_metric(), has_courses))
        else {
            continue;
        };
        let asked = figure.courses.iter().filter(|course| course.of == of);
        found
            .extend(asked.filter_map(|course| Some((said(name, course), course_of(run, course)?))));
        met.push((name, events::of(run)));
    }
    let bin_ms = found
        .iter()
        .map(|(_, course)| course.bin_ms)
        .reduce(f64::max)?
        .max(1.0);
    let (x, lines) = lines(&found, bin_ms, figure.span_s);
    let metric = Metric::of(of);
    Some(Chart {
        title: filled([metric.label.as_str(), &grid.name()], ", "),
        caption: format!(
            "In bins of {}, of one run.",
            Metric::of("x_us").print(bin_ms * 1e3)
        ),
        unit: metric.unit.symbol(),
        log: figure.log_y,
        x,
        lines,
        events: events::together(&met, bin_ms / 1e3),
        ..Chart::default()
    })
}

fn has_courses(run: &Run) -> bool {
    run.series
        .as_ref()
        .is_some_and(|series| !series.courses.is_empty())
}

/// "cubic, flow a".
fn said(row: &str, course: &CourseName) -> String {
    let words = filled([row, course.flow.as_deref().unwrap_or("")], " ");
    match words.is_empty() {
        true => Metric::of(&course.of).label,
        false => words,
    }
}

fn course_of<'a>(run: &'a Run, name: &CourseName) -> Option<&'a Course> {
    run.series
        .as_ref()?
        .courses
        .iter()
        .find(|course| course.name == *name)
}

/// All on the axis of the widest bins, within the seconds that are asked for.
fn lines(
    found: &[(String, &Course)],
    bin_ms: f64,
    span_s: Option<[f64; 2]>,
) -> (Vec<f64>, Vec<Line>) {
    let [from, to] = span_s.unwrap_or([0.0, f64::INFINITY]);
    let bins =
        |course: &Course| (course.values.len() as f64 * course.bin_ms / bin_ms).ceil() as usize;
    let all = found
        .iter()
        .map(|(_, course)| bins(course))
        .max()
        .unwrap_or(0);
    let x: Vec<f64> = (0..all)
        .map(|bin| bin as f64 * bin_ms / 1e3)
        .filter(|at| (from..=to).contains(at))
        .collect();
    let line = |(n, (label, course)): (usize, &(String, &Course))| {
        let (colour, dash) = line_style(n);
        // In the base unit, to which `chart.js` puts prefixes.
        let scale = match Metric::of(&course.name.of).unit {
            Unit::Micros => 1e-6,
            _ => 1.0,
        };
        let value = |at: &f64| at_time(course, *at).map(|value| value * scale);
        Line {
            label: label.clone(),
            colour,
            dash,
            thin: found.len() > NAMED_MAX,
            values: x.iter().map(value).collect(),
            ..Line::default()
        }
    };
    let lines = found.iter().enumerate().map(line).collect();
    (x, lines)
}

/// The value at a time; half a bin keeps 0.3 / 0.1 from falling into the bin before.
fn at_time(course: &Course, at_s: f64) -> Option<f64> {
    let bin = (at_s * 1e3 / course.bin_ms.max(1e-9) + 0.5) as usize;
    *course.values.get(bin)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(of: &str, bin_ms: f64, values: &[f64]) -> Course {
        let name = CourseName {
            of: of.to_owned(),
            flow: None,
        };
        Course {
            name,
            bin_ms,
            values: values.iter().copied().map(Some).collect(),
        }
    }

    #[test]
    fn courses_with_different_bins_share_the_wider_ones() {
        let (fine, coarse) = (
            course("x_us", 100.0, &[1.0, 2.0, 3.0, 4.0]),
            course("x_us", 200.0, &[7.0, 8.0]),
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
    fn only_the_seconds_that_are_asked_for_are_drawn() {
        let course = course("goodput_bps", 1000.0, &[1.0, 2.0, 3.0, 4.0]);
        let (x, lines) = lines(&[(String::new(), &course)], 1000.0, Some([1.0, 2.0]));
        assert_eq!(
            (x.as_slice(), lines[0].values.as_slice()),
            (&[1.0, 2.0][..], &[Some(2.0), Some(3.0)][..])
        );
    }
}
