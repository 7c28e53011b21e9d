// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data and ACK stream of captured flows, as in figures 3, 4, 6 and 7 of the ACK paper. One chart has the data rate
//! upwards and the acknowledged rate downwards, another has the ACKs of each millisecond. Both show the run that is
//! nearest to the median of its cell. All cells have the same scale.

use super::legs;
use crate::result::{CaptureSeries, Cell, Event, LabResult, PercentileBand};
use longhaul_report::{
    chart::{Chart, Line, LineStyle, Positions, ReferenceLine},
    metric::Metric,
};
use longhaul_stats::sample::mean;

/// Maximum number of cells, and of flows of each. A flow has two charts.
const CELLS_MAX: usize = 2;
const FLOWS_MAX: usize = 2;
/// Interval of the mean that the thick line shows, seconds.
const MEAN_INTERVAL_S: f64 = 1.0;
/// Maximum ratio of the end of the scale to the best second. Higher bins leave the chart.
const SPIKE_RATIO_MAX: f64 = 2.5;

/// Captured flow of a cell.
struct CapturedFlow<'a> {
    cell: &'a Cell,
    flow: Option<&'a str>,
    series: &'a CaptureSeries,
}

/// Returns two charts for each flow, or none if no flow was captured.
pub(crate) fn charts(result: &LabResult) -> Vec<Chart> {
    let capacity = result.bottleneck().map(|(_, rate_bps)| rate_bps);
    let all: Vec<CapturedFlow<'_>> = cells(result)
        .into_iter()
        .flat_map(|cell| flows(result, cell))
        .collect();
    let charts_of_flow =
        |captured: &CapturedFlow<'_>| [rate_chart(captured, capacity), ack_chart(captured)];
    all.iter().flat_map(charts_of_flow).collect()
}

/// Returns the cells that the headline compares, the baseline first; without a headline, the first cells.
fn cells(result: &LabResult) -> Vec<&Cell> {
    let has_captures = |cell: &&Cell| cell.successful_runs().any(|run| !captures(run).is_empty());
    let headline = result.headline.as_ref();
    let compared = headline.map(|headline| headline.baseline.into_iter().chain([headline.cell]));
    let compared_cells: Vec<&Cell> = compared
        .into_iter()
        .flatten()
        .filter_map(|n| result.cells.get(n))
        .filter(has_captures)
        .collect();
    if compared_cells.is_empty() {
        result
            .cells
            .iter()
            .filter(has_captures)
            .take(CELLS_MAX)
            .collect()
    } else {
        compared_cells
    }
}

fn captures(run: &crate::result::Run) -> &[CaptureSeries] {
    run.series.as_ref().map_or(&[], |series| &series.captures)
}

fn flows<'a>(result: &'a LabResult, cell: &'a Cell) -> Vec<CapturedFlow<'a>> {
    let has_captures = |run: &&crate::result::Run| !captures(run).is_empty();
    let run = legs::nearest_to_median(cell, result.main_metric()).filter(has_captures);
    let all = run
        .or_else(|| cell.successful_runs().find(has_captures))
        .map_or(&[][..], captures);
    let name = |series: &'a CaptureSeries| (all.len() > 1).then_some(series.flow.as_str());
    all.iter()
        .take(FLOWS_MAX)
        .map(|series| CapturedFlow {
            cell,
            flow: name(series),
            series,
        })
        .collect()
}

/// Returns the ceiling of the scale: the best second times [`SPIKE_RATIO_MAX`].
fn ceiling(series: &CaptureSeries, bands: &[&PercentileBand]) -> Option<f64> {
    let seconds = bands
        .iter()
        .map(|band| best_second(&band.mean, series.bin_ms));
    seconds.reduce(f64::max).map(|rate| rate * SPIKE_RATIO_MAX)
}

/// Returns the chart of rates (figures 3 and 6 of the paper).
fn rate_chart(captured: &CapturedFlow<'_>, capacity: Option<f64>) -> Chart {
    let series = captured.series;
    let data = lines("data", "--first", &series.data_bps, series, 1.0);
    let acked = lines("acknowledged", "--third", &series.acked_bps, series, -1.0);
    Chart {
        title: format!(
            "Data rate (up) and acknowledged rate (down), {}{}",
            name(captured),
            describe_rates(captured)
        ),
        caption: format!(
            "Payload sent and payload newly acknowledged, captured at the sender’s end of {} in one run. Thick line: \
             mean over 1 s; thin line: mean over {}; band: 5th to 95th percentile of bins of {}.",
            series.link,
            print_ms(series.bin_ms),
            print_ms(series.fine_ms),
        ),
        unit: "bit/s",
        wide: true,
        mirrored: true,
        ceiling: ceiling(series, &[&series.data_bps, &series.acked_bps]),
        shared_axes: "data rate".to_owned(),
        lines: [data, acked].concat(),
        reference_lines: capacity
            .map(ReferenceLine::bottleneck)
            .into_iter()
            .collect(),
        events: events(series),
        ..Chart::default()
    }
}

/// Returns the chart of ACK packets (figures 4 and 7 of the paper).
fn ack_chart(captured: &CapturedFlow<'_>) -> Chart {
    let series = captured.series;
    Chart {
        title: format!(
            "ACKs per millisecond, {}{}",
            name(captured),
            describe_ack_rates(captured)
        ),
        caption: format!(
            "Pure ACKs that reached the sender in bins of {}. Thick line: mean over 1 s; thin line: mean over {}; \
             band: 5th to 95th percentile of the bins.",
            print_ms(series.fine_ms),
            print_ms(series.bin_ms)
        ),
        unit: "",
        wide: true,
        ceiling: ceiling(series, &[&series.acks]),
        shared_axes: "ACKs".to_owned(),
        lines: lines("ACKs", "--third", &series.acks, series, 1.0),
        events: events(series),
        ..Chart::default()
    }
}

fn name(captured: &CapturedFlow<'_>) -> String {
    let flow = captured.flow.map(|flow| format!(", {flow}"));
    format!("{}{}", captured.cell.name(), flow.unwrap_or_default())
}

/// Returns the median of a metric of the flow over the cell's runs.
fn metric(captured: &CapturedFlow<'_>, name: &str) -> Option<f64> {
    let name = captured
        .flow
        .map_or(name.to_owned(), |flow| format!("{flow}_{name}"));
    Some(captured.cell.metrics.get(&name)?.median)
}

/// Describes ramp-up and steady rate: ": ramp-up 17.1 s, then 385 Mbit/s".
fn describe_rates(captured: &CapturedFlow<'_>) -> String {
    let rate = metric(captured, "data_steady_bps").map(|rate| Metric::of("x_bps").format(rate));
    let first = captured.series.phases.first();
    let ramp_up = first.filter(|phase| phase.name == "ramp-up");
    let ramp_up = ramp_up.map(|phase| Metric::of("x_s").format(phase.to_s - phase.from_s));
    match (ramp_up, rate) {
        (Some(ramp_up), Some(rate)) => format!(": ramp-up {ramp_up}, then {rate}"),
        (None, Some(rate)) => format!(": {rate}"),
        _ => String::new(),
    }
}

/// Describes the ACK rates: ": 16.6 kpackets/s during ramp-up, then 16.7 kpackets/s".
fn describe_ack_rates(captured: &CapturedFlow<'_>) -> String {
    let print = |name| metric(captured, name).map(|rate| Metric::of("x_pps").format(rate));
    match (print("ramp_up_acks_pps"), print("steady_acks_pps")) {
        (Some(before), Some(after)) => format!(": {before} during ramp-up, then {after}"),
        (None, Some(after)) => format!(": {after}"),
        _ => String::new(),
    }
}

fn print_ms(ms: f64) -> String {
    Metric::of("x_us").format(ms * 1e3)
}

/// Returns a thin line through all bins with its band, and a thick line of the means of each second.
fn lines(
    label: &str,
    colour: &'static str,
    band: &PercentileBand,
    series: &CaptureSeries,
    sign: f64,
) -> Vec<Line> {
    let signed = |values: &[f64]| values.iter().map(|value| Some(value * sign)).collect();
    let style = LineStyle::solid(colour);
    let x = Positions::Bins {
        from: 0.0,
        step: series.bin_ms / 1e3,
    };
    let (low, high) = if sign < 0.0 {
        (&band.high, &band.low)
    } else {
        (&band.low, &band.high)
    };
    let fine = Line {
        label: format!("{label}, {}", print_ms(series.bin_ms)),
        style,
        x: x.clone(),
        thin: true,
        values: signed(&band.mean),
        low: signed(low),
        high: signed(high),
        ..Line::default()
    };
    let mean = Line {
        label: format!("{label}, mean over 1 s"),
        style,
        x,
        values: second_means(&band.mean, series.bin_ms)
            .into_iter()
            .map(|value| value.map(|value| value * sign))
            .collect(),
        ..Line::default()
    };
    vec![fine, mean]
}

/// Replaces each value by the mean of its second. An incomplete second at the end has no value, unless it is the only
/// one.
fn second_means(values: &[f64], bin_ms: f64) -> Vec<Option<f64>> {
    let bins = bins_per_second(bin_ms).min(values.len()).max(1);
    let mean = |second_of_bins: &[f64]| {
        mean(second_of_bins.iter().copied()).filter(|_| second_of_bins.len() == bins)
    };
    let chunks = values.chunks(bins);
    chunks
        .flat_map(|second_of_bins| std::iter::repeat_n(mean(second_of_bins), second_of_bins.len()))
        .collect()
}

/// Returns the greatest mean of a second. A series that is shorter counts as one second.
fn best_second(values: &[f64], bin_ms: f64) -> f64 {
    let seconds = second_means(values, bin_ms).into_iter().flatten();
    seconds.fold(0.0, f64::max)
}

/// Returns the number of bins in a second.
fn bins_per_second(bin_ms: f64) -> usize {
    ((MEAN_INTERVAL_S * 1e3 / bin_ms).round() as usize).max(1)
}

/// Returns the beginning of each phase; consecutive phases of the same name are one.
fn events(series: &CaptureSeries) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for phase in &series.phases {
        if events.last().is_none_or(|last| last.label != phase.name) {
            events.push(Event {
                at_s: phase.from_s,
                label: phase.name.clone(),
            });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        result::{FlowPhase, Headline, Run, Series, Testbed, TestbedLink},
        summary::Summary,
    };
    use std::fmt::Write;

    fn band(mean: f64, high: f64) -> PercentileBand {
        PercentileBand {
            mean: vec![mean; 40],
            low: vec![0.0; 40],
            high: vec![high; 40],
        }
    }

    fn phase(name: &str, from_s: f64, to_s: f64) -> FlowPhase {
        FlowPhase {
            name: name.to_owned(),
            from_s,
            to_s,
        }
    }

    /// Returns a cell with four seconds of 1 Mbit/s in bins of 100 ms, and a failed run.
    fn cell(label: &str, high: f64) -> Cell {
        let series = CaptureSeries {
            flow: "bulk".to_owned(),
            link: "line".to_owned(),
            bin_ms: 100.0,
            fine_ms: 1.0,
            data_bps: band(1e6, high),
            acked_bps: band(1e6, 2e6),
            acks: band(3.0, 6.0),
            phases: vec![
                phase("ramp-up", 0.0, 1.0),
                phase("steady", 1.0, 3.0),
                phase("steady", 3.0, 4.0),
            ],
        };
        let run = Run {
            series: Some(Series {
                captures: vec![series],
                ..Series::default()
            }),
            ..Run::default()
        };
        let failed = Run {
            failed: Some("reset".to_owned()),
            ..Run::default()
        };
        let metric = |name: &str, value| (name.to_owned(), Summary::of([value]).unwrap());
        let metrics = [
            metric("data_steady_bps", 1e6),
            metric("ramp_up_s", 1.0),
            metric("ramp_up_acks_pps", 500.0),
            metric("steady_acks_pps", 600.0),
        ];
        Cell {
            label: Some(label.to_owned()),
            runs: vec![failed, run],
            metrics: metrics.into_iter().collect(),
            ..Cell::default()
        }
    }

    fn result() -> LabResult {
        let link = TestbedLink {
            rate_bps: Some(1.1e6),
            ..TestbedLink::default()
        };
        LabResult {
            cells: vec![cell("a", 3e6), cell("b", 99e6), cell("c", 5e6)],
            testbed: Some(Testbed {
                links: vec![link],
                ..Testbed::default()
            }),
            ..LabResult::default()
        }
    }

    /// Describes the charts, line by line.
    fn outline(charts: &[Chart]) -> String {
        let mut text = String::new();
        for chart in charts {
            let _ = writeln!(text, "{}\n  {}", chart.title, chart.caption);
            let (axes, top) = (&chart.shared_axes, chart.ceiling);
            let _ = writeln!(text, "  {axes} axis up to {top:?} {}", chart.unit);
            for line in &chart.lines {
                let band = (line.low.first(), line.high.first());
                let first = line.values[0];
                let _ = writeln!(
                    text,
                    "  {} {first:?} {band:?} thin {}",
                    line.label, line.thin
                );
            }
            let limit = chart.reference_lines.first().map(|limit| &limit.label);
            let events = chart.events.iter();
            let events: Vec<_> = events
                .map(|e| format!("{} at {} s", e.label, e.at_s))
                .collect();
            let _ = writeln!(text, "  limit {limit:?}, {}", events.join(", "));
        }
        text
    }

    #[test]
    fn draws_two_charts_per_cell_on_one_scale() {
        let mut result = result();
        assert_eq!(charts(&result).len(), 4, "the first two of three cells");
        result.headline = Some(Headline {
            cell: 1,
            baseline: Some(0),
            ..Headline::default()
        });
        insta::assert_snapshot!(outline(&charts(&result)));
    }

    #[test]
    fn draws_nothing_without_captures() {
        let mut result = result();
        for cell in &mut result.cells {
            cell.runs.truncate(1);
        }
        assert_eq!(charts(&result).len(), 0);
    }

    #[test]
    fn names_several_flows() {
        let mut result = result();
        result.cells.truncate(1);
        let series = result.cells[0].runs[1].series.as_mut().unwrap();
        let other = CaptureSeries {
            flow: "other".to_owned(),
            ..series.captures[0].clone()
        };
        series.captures.push(other);
        let charts = charts(&result);
        assert!(charts[0].title.contains("a, bulk"), "{}", charts[0].title);
        assert!(charts[2].title.contains("a, other"), "{}", charts[2].title);
    }

    #[test]
    fn smooths_by_whole_seconds() {
        let (two, none) = (Some(2.0), None);
        assert_eq!(second_means(&[1.0, 3.0, 5.0], 500.0), [two, two, none]);
        assert_eq!(second_means(&[1.0, 3.0], 3000.0), [Some(1.0), Some(3.0)]);
        assert_eq!(
            best_second(&[1.0, 3.0, 50.0], 500.0),
            2.0,
            "the last bin is no whole second"
        );
        assert_eq!(best_second(&[1.0, 3.0], 100.0), 2.0);
    }
}
