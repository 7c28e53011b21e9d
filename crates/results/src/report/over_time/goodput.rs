// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goodput over time of the cells that the headline compares, on one scale, with the capacity of the path. The line is
//! the median over the runs of a cell, the band their range.

use super::events;
use crate::{
    result::{Cell, Event, LabResult, Series},
    summary::Summary,
};
use longhaul_report::{
    chart::{Chart, Line, LineStyle, Positions, ReferenceLine},
    metric::Metric,
};
use longhaul_stats::sample::mean;

/// Ratio of a link's rate to the goodput above which the link's line is left out, because it would flatten the others.
const LINK_RATIO_MAX: f64 = 5.0;
/// Maximum number of cells in a chart; more lines cannot be distinguished.
const CELLS_MAX: usize = 4;

/// Returns the chart, or none if no run has a time series.
pub(crate) fn charts(result: &LabResult) -> Vec<Chart> {
    let cells = cells_to_draw(result);
    let Some(bin_s) = cells
        .iter()
        .flat_map(|n| series(&result.cells[*n]))
        .map(bin_s)
        .reduce(f64::max)
    else {
        return Vec::new();
    };
    let lines: Vec<Line> = cells
        .iter()
        .enumerate()
        .map(|(index, n)| line(&result.cells[*n], bin_s, style(result, index, *n)))
        .collect();
    let most = lines
        .iter()
        .flat_map(|line| &line.values)
        .flatten()
        .copied()
        .fold(0.0, f64::max);
    let link = result
        .bottleneck()
        .map(|(_, rate_bps)| ReferenceLine::bottleneck(rate_bps));
    let (drawn_lines, left_out_links): (Vec<ReferenceLine>, Vec<ReferenceLine>) = link
        .into_iter()
        .partition(|link| link.value < most * LINK_RATIO_MAX);
    vec![Chart {
        title: title(result, &cells),
        caption: caption(
            bin_s,
            cells.len(),
            result.cells.len(),
            left_out_links.first(),
        ),
        unit: "bit/s",
        wide: true,
        lines,
        reference_lines: drawn_lines,
        events: merged_events(result, &cells, bin_s),
        ..Chart::default()
    }]
}

fn caption(
    bin_s: f64,
    drawn_count: usize,
    all_count: usize,
    left_out_link: Option<&ReferenceLine>,
) -> String {
    let bin = Metric::of("bin_s").format(bin_s);
    let left_out = if drawn_count < all_count {
        format!(" Drawn: {drawn_count} of {all_count} cells.")
    } else {
        String::new()
    };
    let left_out_link = left_out_link.map_or(String::new(), |link| {
        format!(" Not drawn, because it is far above: {}.", link.label)
    });
    format!(
        "Goodput at the receiver in bins of {bin}; line: median of the runs, band: their range.{left_out}{left_out_link}"
    )
}

/// Returns the indices of the cells to draw: all with time series if they are few, else those that the headline
/// compares, else the first ones.
pub(crate) fn cells_to_draw(result: &LabResult) -> Vec<usize> {
    let drawable = |n: &usize| {
        result
            .cells
            .get(*n)
            .is_some_and(|cell| series(cell).count() > 0)
    };
    let drawable_cells: Vec<usize> = (0..result.cells.len()).filter(drawable).collect();
    match &result.headline {
        Some(headline) if drawable_cells.len() > CELLS_MAX => {
            let compared = headline.baseline.into_iter().chain([headline.cell]);
            compared.filter(drawable).collect()
        }
        _ => drawable_cells.into_iter().take(CELLS_MAX).collect(),
    }
}

fn series(cell: &Cell) -> impl Iterator<Item = &Series> {
    cell.successful_runs().filter_map(|run| run.series.as_ref())
}

fn bin_s(series: &Series) -> f64 {
    series.bin_ms.max(1.0) / 1e3
}

/// Returns the style of a cell's line: blue for the headline's cell, grey for its baseline.
fn style(result: &LabResult, index: usize, n: usize) -> LineStyle {
    match &result.headline {
        Some(headline) if headline.cell == n => LineStyle::nth(0),
        Some(headline) if headline.baseline == Some(n) => LineStyle::nth(4),
        Some(_) => LineStyle::nth(1 + index % 3),
        None => LineStyle::nth(index),
    }
}

fn line(cell: &Cell, step_s: f64, style: LineStyle) -> Line {
    let runs: Vec<&Series> = series(cell).collect();
    let bins = runs
        .iter()
        .map(|run| length_s(run) / step_s)
        .fold(0.0, f64::max)
        .ceil() as usize;
    let summaries: Vec<Option<Summary>> = (0..bins)
        .map(|bin| Summary::of(runs.iter().map(|run| goodput_at(run, bin as f64 * step_s))))
        .collect();
    let pick = |part: fn(Summary) -> f64| summaries.iter().map(|s| s.map(part)).collect();
    let band = runs.len() > 1;
    Line {
        label: cell.name(),
        style,
        x: Positions::Bins {
            from: 0.0,
            step: step_s,
        },
        values: pick(|s| s.median),
        low: if band { pick(|s| s.min) } else { Vec::new() },
        high: if band { pick(|s| s.max) } else { Vec::new() },
        ..Line::default()
    }
}

fn length_s(series: &Series) -> f64 {
    series.goodput_bps.len() as f64 * bin_s(series)
}

/// Returns the goodput at `time_s`, bit/s; 0 after the end of the run.
fn goodput_at(series: &Series, time_s: f64) -> f64 {
    // Half a bin is added, so that rounding (0.3 / 0.1) does not select the bin before.
    let bin = (time_s / bin_s(series) + 0.5) as usize;
    series.goodput_bps.get(bin).copied().unwrap_or(0.0)
}

fn merged_events(result: &LabResult, cells: &[usize], bin_s: f64) -> Vec<Event> {
    let own = |n: &usize| {
        let cell = &result.cells[*n];
        (
            cell.name(),
            series(cell)
                .next()
                .map_or(Vec::new(), events_from_first_bin),
        )
    };
    let events: Vec<(String, Vec<Event>)> = cells.iter().map(own).collect();
    let events: Vec<(&str, &[Event])> =
        events.iter().map(|(name, own)| (&**name, &**own)).collect();
    events::merge(&events, bin_s)
}

/// Returns the events with times from the start of the bins instead of the start of the run.
fn events_from_first_bin(series: &Series) -> Vec<Event> {
    let shifted = |event: &Event| Event {
        at_s: event.at_s - series.begin_s,
        label: event.label.clone(),
    };
    series.events.iter().map(shifted).collect()
}

/// Returns the title: "Goodput: 390 Mbit/s (no relays), 2.4 Gbit/s (two relays)".
fn title(result: &LabResult, cells: &[usize]) -> String {
    let describe = |n: &usize| {
        let cell = &result.cells[*n];
        let goodput = Metric::of("goodput_bps").format(goodput(cell)?);
        Some(format!("{goodput} ({})", cell.name()))
    };
    let values: Option<Vec<String>> = cells.iter().map(describe).collect();
    values.map_or("Goodput".to_owned(), |values| {
        format!("Goodput: {}", values.join(", "))
    })
}

/// Returns the cell's goodput metric, because the last bins of a run are incomplete. For several flows, returns the
/// mean of the bins, because the metric is not their sum.
fn goodput(cell: &Cell) -> Option<f64> {
    let mean = |series: &Series| mean(series.goodput_bps.iter().copied());
    if cell
        .metrics
        .keys()
        .any(|name| name.ends_with("_goodput_bps"))
    {
        Some(Summary::of(series(cell).filter_map(mean))?.median)
    } else {
        Some(cell.metrics.get("goodput_bps")?.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Headline, Run};

    fn run(goodput_bps: &[f64]) -> Run {
        let goodput_bps = goodput_bps.to_vec();
        Run {
            series: Some(Series {
                bin_ms: 100.0,
                goodput_bps,
                ..Series::default()
            }),
            ..Run::default()
        }
    }

    #[test]
    fn line_is_median_and_band_is_range() {
        let cell = Cell {
            runs: vec![run(&[1.0, 5.0]), run(&[3.0, 6.0]), run(&[2.0])],
            ..Cell::default()
        };
        let line = line(&cell, 0.1, LineStyle::nth(0));
        assert_eq!(line.values, [Some(2.0), Some(5.0)]);
        assert_eq!(line.low, [Some(1.0), Some(0.0)]);
        assert_eq!(line.high, [Some(3.0), Some(6.0)]);
    }

    #[test]
    fn reads_every_bin_once() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let cell = Cell {
            runs: vec![run(&values)],
            ..Cell::default()
        };
        let line = line(&cell, 0.1, LineStyle::nth(0));
        assert_eq!(
            line.values,
            values.into_iter().map(Some).collect::<Vec<_>>()
        );
    }

    #[test]
    fn shifts_events_to_the_start_of_the_bins() {
        let mut switched = run(&[1.0; 100]);
        let series = switched.series.as_mut().unwrap();
        series.begin_s = 2.0;
        series.events = vec![Event {
            at_s: 5.0,
            label: "delay 1 → 2 ms".to_owned(),
        }];
        let cell = |label: &str, run: Run| Cell {
            label: Some(label.to_owned()),
            runs: vec![run],
            ..Cell::default()
        };
        let result = LabResult {
            cells: vec![cell("still", run(&[1.0; 100])), cell("switched", switched)],
            ..LabResult::default()
        };
        let events = &charts(&result)[0].events;
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].at_s, &*events[0].label),
            (3.0, "switched: delay 1 → 2 ms")
        );
    }

    #[test]
    fn draws_only_compared_cells_when_there_are_many() {
        let cell = Cell {
            runs: vec![run(&[1.0])],
            ..Cell::default()
        };
        let headline = Headline {
            cell: 5,
            baseline: Some(2),
            ..Default::default()
        };
        let mut result = LabResult {
            cells: vec![cell; 6],
            headline: Some(headline),
            ..LabResult::default()
        };
        assert_eq!(cells_to_draw(&result), [2, 5]);
        result.cells.truncate(3);
        assert_eq!(cells_to_draw(&result), [0, 1, 2]);
    }
}
