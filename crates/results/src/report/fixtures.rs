// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test fixtures: invented results.

use crate::{
    result::{Cell, Event, LabResult, Metrics, Run, Series, Testbed, TestbedHost, TestbedLink},
    view::{
        Axis, Entry, Facet, Figure, FigureKind, ReferenceLine, Table, TimeSeries, TimeSeriesId,
    },
};
use serde_json::{Value, json};

const COUNTS: [u64; 4] = [1, 2, 3, 4];
const CONTROLS: [&str; 2] = ["cubic", "bbr"];

/// Returns a download over two relays; its scenario selects no figures.
pub(crate) fn download() -> LabResult {
    serde_json::from_str(include_str!("../../tests/fixtures/result.json")).unwrap()
}

/// Returns a result with a figure of each kind and a table, over n and two congestion controls.
pub(crate) fn every_figure() -> LabResult {
    let series_ids = |of: &[&str]| {
        let name = |of: &&str| TimeSeriesId {
            metric: (*of).to_owned(),
            flow: Some("a".to_owned()),
        };
        of.iter().map(name).collect::<Vec<_>>()
    };
    let two = figure("over-time", FigureKind::Line, &[]);
    let figures = vec![
        Figure {
            reference_lines: vec![ReferenceLine {
                value: 5e8,
                label: "line".to_owned(),
            }],
            ..figure("lines", FigureKind::Line, &["goodput_bps", "model_bps"])
        },
        figure("bars", FigureKind::Bars, &["goodput_bps"]),
        figure("heat", FigureKind::Heatmap, &["goodput_bps"]),
        Figure {
            reference: false,
            ..figure("by-value", FigureKind::Heatmap, &["other_bps"])
        },
        figure("matrix", FigureKind::Matrix, &["goodput_bps", "other_bps"]),
        figure("runs", FigureKind::Cdf, &["goodput_bps"]),
        Figure {
            time_series: series_ids(&["srtt_us"]),
            ..figure("delays", FigureKind::Cdf, &[])
        },
        Figure {
            time_series: series_ids(&["goodput_bps", "cwnd_bytes", "srtt_us"]),
            facets: vec![one_column()],
            ..two
        },
    ];
    let table = Table {
        name: "all".to_owned(),
        title: "Both metrics".to_owned(),
        note: Some("Made up.".to_owned()),
        metrics: ["goodput_bps", "other_bps"].map(str::to_owned).to_vec(),
        reference: true,
        facets: vec![all_cells()],
    };
    LabResult {
        scenario: "every-figure".to_owned(),
        cells: cells(),
        figures,
        tables: vec![table],
        testbed: Some(dumbbell()),
        duration_s: Some(80.0),
        ..download()
    }
}

fn figure(name: &str, kind: FigureKind, metrics: &[&str]) -> Figure {
    Figure {
        name: name.to_owned(),
        kind,
        title: format!("What {name} shows"),
        note: Some("Made up.".to_owned()),
        metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
        reference: true,
        facets: vec![all_cells()],
        ..Figure::default()
    }
}

/// Returns a panel with a row for each congestion control and a column for each n.
fn all_cells() -> Facet {
    Facet {
        rows: axis("control", &CONTROLS.map(Value::from)),
        columns: axis("n", &COUNTS.map(Value::from)),
        cells: (0..CONTROLS.len())
            .map(|row| {
                (0..COUNTS.len())
                    .map(|column| Some(row * COUNTS.len() + column))
                    .collect()
            })
            .collect(),
        ..Facet::default()
    }
}

/// Returns a panel with a row for each congestion control and one column, as for time series.
pub(super) fn one_column() -> Facet {
    Facet {
        columns: Axis {
            parameters: Vec::new(),
            entries: vec![Entry::default()],
        },
        cells: (0..CONTROLS.len())
            .map(|row| vec![Some(row * COUNTS.len())])
            .collect(),
        ..all_cells()
    }
}

fn axis(by: &str, values: &[Value]) -> Axis {
    let entry = |value: &Value| Entry {
        values: vec![value.clone()],
        label: None,
    };
    Axis {
        parameters: vec![by.to_owned()],
        entries: values.iter().map(entry).collect(),
    }
}

fn cells() -> Vec<Cell> {
    let combinations = CONTROLS
        .iter()
        .enumerate()
        .flat_map(|(w, control)| COUNTS.map(|n| (w, *control, n)));
    combinations
        .map(|(w, control, n)| cell(w, control, n))
        .collect()
}

fn cell(w: usize, control: &str, n: u64) -> Cell {
    let base = (n as f64 * 1e8) * (1.0 + w as f64 * 0.2);
    let runs = [0.95, 1.0, 1.1].map(|factor| run(base * factor, n));
    let mut cell = Cell {
        parameters: serde_json::from_value(json!({"control": control, "n": n})).unwrap(),
        runs: runs.to_vec(),
        ..Cell::default()
    };
    cell.summarise();
    if w == 0 {
        cell.reference = Metrics::from([("goodput_bps".to_owned(), n as f64 * 0.9e8)]);
    }
    cell
}

fn run(goodput: f64, n: u64) -> Run {
    let metrics = [
        ("goodput_bps", goodput),
        ("model_bps", n as f64 * 1.1e8),
        ("other_bps", 5e8 - goodput),
    ];
    Run {
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        series: Some(Series {
            time_series: ["goodput_bps", "cwnd_bytes", "srtt_us"]
                .map(|of| time_series(of, goodput))
                .to_vec(),
            events: [(3.0, "delay 38 → 80 ms"), (9.5, "delay 80 → 38 ms")]
                .map(|(at_s, label)| Event {
                    at_s,
                    label: label.to_owned(),
                })
                .to_vec(),
            ..Series::default()
        }),
        ..Run::default()
    }
}

fn time_series(of: &str, goodput: f64) -> TimeSeries {
    let level = match of {
        "goodput_bps" => goodput,
        "cwnd_bytes" => 1e6,
        _ => 38e3,
    };
    let value = |bin: u32| Some(level * (0.7 + 0.3 * (f64::from(bin) / 7.0).sin()));
    TimeSeries {
        name: TimeSeriesId {
            metric: of.to_owned(),
            flow: Some("a".to_owned()),
        },
        bin_ms: 100.0,
        values: (0..100).map(value).collect(),
    }
}

/// Returns a dumbbell: two senders, a shared link, two receivers.
fn dumbbell() -> Testbed {
    let path = |hosts: [&str; 4], links: [&str; 3]| Testbed {
        hosts: hosts
            .map(|name| TestbedHost {
                name: name.to_owned(),
                note: None,
            })
            .to_vec(),
        links: links.map(link).to_vec(),
        other_paths: Vec::new(),
    };
    Testbed {
        other_paths: vec![path(["b", "left", "right", "y"], ["in-b", "line", "out-y"])],
        ..path(["a", "left", "right", "x"], ["in-a", "line", "out-x"])
    }
}

fn link(name: &str) -> TestbedLink {
    TestbedLink {
        name: name.to_owned(),
        rate_bps: (name == "line").then_some(5e8),
        rtt_us: 2e3,
        rtt_us_max: (name == "line").then_some(18e4),
        loss: 0.0,
        ..TestbedLink::default()
    }
}
