// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions as text (a table and its formulas) and as JSON.

use super::{
    super::estimate::{Estimate, Source, format_rate},
    config::Config,
};
use longhaul_report::columns::{self, align};
use longhaul_tcpsim::formulas::{
    Control, Formula, HEADERS,
    slow_start::{self, Completion, Transfer},
    streams::{self, Streams},
};
use longhaul_units::bdp;
use serde_json::{Value, json};
use std::fmt::Write;

/// Prediction for one congestion control.
pub(super) struct Row {
    control: Control,
    found: Option<Figures>,
}

struct Figures {
    estimate: Estimate,
    streams: Streams,
    completion: Option<Completion>,
}

impl Row {
    pub(super) fn new(control: Control, estimate: Option<Estimate>, config: &Config) -> Self {
        let found = estimate.map(|estimate| {
            let single = estimate.prediction(&config.path);
            let count = config
                .streams
                .unwrap_or_else(|| streams::needed(&single, &config.path));
            Figures {
                estimate,
                streams: streams::of(count, &single, &config.path),
                completion: completion(config, &estimate),
            }
        });
        Self { control, found }
    }
}

/// Returns the completion time of one connection: no formula covers slow start of several connections.
fn completion(config: &Config, estimate: &Estimate) -> Option<Completion> {
    let transfer = Transfer {
        bytes: config.size?.get(),
        initial_window: config.initial_window,
        connected: false,
    };
    Some(slow_start::completion(
        transfer,
        &config.path,
        estimate.goodput_bps,
        estimate.control,
    ))
}

/// Returns the report as text.
pub(super) fn text(config: &Config, rows: &[Row]) -> String {
    let path = &config.path;
    let mut out = format!(
        "{} × {} = {} in flight, {:.0} packets of {} bytes; loss {}%, queue {}, window {}\n\n",
        path.rate,
        path.rtt,
        bdp(path.rate, path.rtt),
        path.bdp_packets(),
        path.mss + HEADERS,
        path.loss * 100.0,
        path.queue,
        path.window
    );
    let mut table = vec![head(config)];
    table.extend(rows.iter().map(|row| line(row, config)));
    out += &columns::join_lines(&align(&table));
    out += "\n";
    out += &formula_notes(config, rows);
    out
}

fn head(config: &Config) -> Vec<String> {
    let mut head: Vec<String> = [
        "cc",
        "one stream",
        "utilisation",
        "limited by",
        "method",
        "by formula",
        "recovery time",
        "streams",
        "all streams",
        "window per stream",
        "buffers",
    ]
    .map(str::to_owned)
    .to_vec();
    head.extend(config.size.map(|size| format!("{size} takes")));
    head
}

fn line(row: &Row, config: &Config) -> Vec<String> {
    let name = row.control.to_string();
    let Some(found) = &row.found else {
        return vec![name, "–".into(), "–".into(), "no formula".into()];
    };
    let Estimate {
        goodput_bps,
        limit,
        source,
        formula,
        ..
    } = found.estimate;
    let share = goodput_bps / config.path.payload_bps() * 100.0;
    let mut line = vec![
        name,
        format_rate(goodput_bps),
        format!("{share:.1} %"),
        limit.to_string(),
        match source {
            Source::Formula => "formula".into(),
            Source::Simulation => "simulation".into(),
        },
        formula.map_or("–".into(), |formula| format_rate(formula.goodput_bps)),
        found
            .estimate
            .recovery()
            .map_or("–".into(), |time| time.to_string()),
        found.streams.count.to_string(),
        format_rate(found.streams.goodput_bps),
        found.streams.window.to_string(),
        found.streams.memory.to_string(),
    ];
    line.extend(found.completion.map(|done| done.last_byte.to_string()));
    line
}

/// Returns notes: each use of a formula outside of its range, and, if asked for, each formula once.
fn formula_notes(config: &Config, rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let outside = row
            .found
            .as_ref()
            .and_then(|found| found.estimate.formula?.outside);
        if let Some(reason) = outside {
            let _ = writeln!(out, "{}: out of its formula's range: {reason}", row.control);
        }
    }
    if !config.prints_formulas {
        return out;
    }
    for formula in formulas(config, rows) {
        let _ = writeln!(
            out,
            "{}: {}\n    source: {}\n    holds for: {}",
            formula.name, formula.equation, formula.source, formula.range
        );
    }
    out
}

fn formulas(config: &Config, rows: &[Row]) -> Vec<Formula> {
    let mut all: Vec<Formula> = Vec::new();
    let used = rows
        .iter()
        .filter_map(|row| Some(row.found.as_ref()?.estimate.formula?.formula));
    let slow_start = config.size.map(|_| slow_start::FORMULA);
    for formula in used.chain(slow_start) {
        if !all.contains(&formula) {
            all.push(formula);
        }
    }
    all
}

/// Returns the report as JSON.
pub(super) fn json(config: &Config, rows: &[Row]) -> Value {
    let path = &config.path;
    json!({
        "path": {
            "rate_bps": path.rate.bits(),
            "rtt_s": path.rtt_s(),
            "loss": path.loss,
            "mss_bytes": path.mss,
            "queue_bytes": path.queue.get(),
            "window_bytes": path.window.get(),
            "bdp_bytes": bdp(path.rate, path.rtt).get(),
            "payload_bps": path.payload_bps(),
        },
        "predictions": rows.iter().map(row_json).collect::<Vec<_>>(),
        "formulas": formulas(config, rows).iter().map(formula_json).collect::<Vec<_>>(),
    })
}

fn formula_json(formula: &Formula) -> Value {
    json!({"name": formula.name, "equation": formula.equation, "source": formula.source, "range": formula.range})
}

fn row_json(row: &Row) -> Value {
    let name = row.control.name();
    let Some(found) = &row.found else {
        return json!({"cc": name});
    };
    let formula = found.estimate.formula;
    let mut value = json!({
        "cc": name,
        "goodput_bps": found.estimate.goodput_bps,
        "limited_by": found.estimate.limit.to_string(),
        "method": found.estimate.source,
        "formula": formula.map(|formula| json!({
            "name": formula.formula.name,
            "goodput_bps": formula.goodput_bps,
            "window_packets": formula.window_packets,
            "out_of_range": formula.outside,
        })),
        "recovery_s": found.estimate.recovery().map(longhaul_units::Time::as_secs_f64),
        "streams": {
            "count": found.streams.count,
            "goodput_bps": found.streams.goodput_bps,
            "window_bytes": found.streams.window.get(),
            "memory_bytes": found.streams.memory.get(),
        },
    });
    if let Some(done) = found.completion {
        value["first_byte_s"] = json!(done.first_byte.as_secs_f64());
        value["last_byte_s"] = json!(done.last_byte.as_secs_f64());
        value["slow_start_rounds"] = json!(done.rounds);
    }
    value
}
