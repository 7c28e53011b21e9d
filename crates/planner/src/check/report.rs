// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of all predictions, and the number of those within the tolerance, as text and JSON.

use super::{
    super::estimate::{Source, format_rate},
    forecast::Forecast,
};
use longhaul_report::columns::{self, align};
use longhaul_stats::sample;
use serde_json::{Value, json};

/// Prediction and measurement of a flow in a cell.
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) cell: String,
    pub(super) metric: String,
    pub(super) lossy: bool,
    pub(super) measured_bps: f64,
    pub(super) forecast: Option<Forecast>,
    /// Whether the machine was overloaded in a run of the cell, so that the measurement is not the path's.
    pub(super) overloaded: bool,
    /// Whether the measurement itself is simulated.
    pub(super) simulated: bool,
}

/// Results of all checks.
#[derive(Default)]
pub(super) struct CheckReport {
    pub(super) rows: Vec<Row>,
    pub(super) links: Vec<LateLink>,
}

/// Link whose emulator was late.
pub(super) struct LateLink {
    pub(super) scenario: String,
    pub(super) link: String,
    /// 99th percentile of the delay error over all runs, microseconds.
    pub(super) p99_us: f64,
}

/// Tolerated error on clean and on lossy paths, as a share of the measurement.
const CLEAN_TOLERANCE: f64 = 0.15;
const LOSSY_TOLERANCE: f64 = 0.3;

impl Row {
    /// Returns the relative error of the prediction.
    fn error(&self) -> Option<f64> {
        self.forecast
            .map(|forecast| forecast.bps / self.measured_bps - 1.0)
    }

    fn tolerance(&self) -> f64 {
        if self.lossy {
            LOSSY_TOLERANCE
        } else {
            CLEAN_TOLERANCE
        }
    }
}

/// Returns the report as text.
pub(super) fn text(checked: &CheckReport) -> String {
    let rows = &checked.rows;
    let head = [
        "scenario",
        "cell",
        "figure",
        "path",
        "predicted",
        "measured",
        "error",
        "method",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(line));
    let mut out = columns::join_lines(&align(&table));
    out += &summary(rows, false);
    out += &summary(rows, true);
    out += &excluded_text(rows);
    out + &checked.links.iter().map(late_link_text).collect::<String>()
}

fn late_link_text(late: &LateLink) -> String {
    format!(
        "{}: the emulator of {} was late by {:.1} ms in one packet of a hundred: in cells whose queue is \
         not much longer, the machine's delay dominates, not the path's\n",
        late.scenario,
        late.link,
        late.p99_us / 1e3
    )
}

fn line(row: &Row) -> Vec<String> {
    let none = || "–".to_owned();
    vec![
        row.scenario.clone(),
        row.cell.clone(),
        row.metric.clone(),
        if row.lossy { "lossy" } else { "clean" }.to_owned(),
        row.forecast
            .map_or_else(none, |forecast| format_rate(forecast.bps)),
        format_rate(row.measured_bps),
        error_text(row).unwrap_or_else(none),
        match row.forecast.map(|forecast| forecast.source) {
            Some(Source::Formula) => "formula".to_owned(),
            Some(Source::Simulation) => "simulation".to_owned(),
            None => "no formula".to_owned(),
        },
    ]
}

fn error_text(row: &Row) -> Option<String> {
    let overloaded = if row.overloaded { ", overloaded" } else { "" };
    let simulated = if row.simulated { ", simulated" } else { "" };
    let error = row.error()? * 100.0;
    Some(format!("{error:+.1} %{overloaded}{simulated}"))
}

fn excluded_text(rows: &[Row]) -> String {
    let left = |which: fn(&&Row) -> bool, why: &str| match rows.iter().filter(which).count() {
        0 => String::new(),
        some => format!("excluded: {some} {why}\n"),
    };
    left(|row| row.overloaded, "with an overloaded run")
        + &left(
            |row| row.simulated,
            "that were simulated, not run on sockets",
        )
}

fn summary(rows: &[Row], lossy: bool) -> String {
    let (name, promised) = if lossy {
        ("lossy", LOSSY_TOLERANCE)
    } else {
        ("clean", CLEAN_TOLERANCE)
    };
    let rows = rows
        .iter()
        .filter(|row| row.lossy == lossy && !row.overloaded && !row.simulated);
    let errors = sample::sorted(rows.filter_map(|row| row.error().map(f64::abs)));
    let Some((median, worst)) = sample::median(&errors).zip(errors.last()) else {
        return String::new();
    };
    let within = errors.iter().filter(|error| **error <= promised).count();
    format!(
        "{name}: {within} of {} within {:.0} %; median error {:.1} %, worst {:.1} %\n",
        errors.len(),
        promised * 100.0,
        median * 100.0,
        worst * 100.0
    )
}

/// Returns the report as JSON.
pub(super) fn json(checked: &CheckReport) -> Value {
    let row = |row: &Row| {
        json!({
            "scenario": row.scenario, "cell": row.cell, "metric": row.metric, "lossy": row.lossy,
            "measured_bps": row.measured_bps,
            "predicted_bps": row.forecast.map(|forecast| forecast.bps),
            "method": row.forecast.map(|forecast| forecast.source),
            "error": row.error(),
            "overloaded": row.overloaded,
            "simulated": row.simulated,
            "within_tolerance": row.error().map(|error| error.abs() <= row.tolerance()),
        })
    };
    let late = |late: &LateLink| json!({"scenario": late.scenario, "link": late.link, "p99_us": late.p99_us});
    json!({
        "rows": checked.rows.iter().map(row).collect::<Vec<_>>(),
        "late_links": checked.links.iter().map(late).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lossy: bool, predicted: f64) -> Row {
        Row {
            scenario: "s".into(),
            cell: "c".into(),
            metric: "goodput_bps".into(),
            lossy,
            measured_bps: 100.0,
            forecast: Some(Forecast {
                bps: predicted,
                source: Source::Formula,
            }),
            overloaded: false,
            simulated: false,
        }
    }

    #[test]
    fn clean_and_lossy_paths_have_their_own_tolerance() {
        let mut checked = CheckReport {
            rows: vec![
                row(false, 114.0),
                row(false, 84.0),
                row(true, 129.0),
                row(true, 69.0),
            ],
            links: vec![],
        };
        let report = text(&checked);
        assert!(report.contains("clean: 1 of 2 within 15 %"), "{report}");
        assert!(report.contains("lossy: 1 of 2 within 30 %"), "{report}");
        assert_eq!(json(&checked)["rows"][1]["within_tolerance"], json!(false));
        checked.links.push(LateLink {
            scenario: "s".into(),
            link: "wan".into(),
            p99_us: 39_059.0,
        });
        assert!(text(&checked).contains("wan was late by 39.1 ms"));
    }

    #[test]
    fn marks_and_excludes_simulated_results() {
        let simulated = Row {
            simulated: true,
            ..row(false, 101.0)
        };
        let checked = CheckReport {
            rows: vec![simulated],
            links: vec![],
        };
        let report = text(&checked);
        assert!(report.contains("+1.0 %, simulated"), "{report}");
        assert!(
            report.contains("excluded: 1 that were simulated"),
            "{report}"
        );
        assert!(!report.contains("clean: "), "{report}");
        assert_eq!(json(&checked)["rows"][0]["simulated"], json!(true));
    }

    #[test]
    fn marks_and_excludes_results_of_overloaded_machines() {
        let busy = Row {
            overloaded: true,
            ..row(false, 10.0)
        };
        let checked = CheckReport {
            rows: vec![row(false, 100.0), busy],
            links: vec![],
        };
        let report = text(&checked);
        assert!(report.contains("-90.0 %, overloaded"), "{report}");
        assert!(report.contains("clean: 1 of 1 within 15 %"), "{report}");
        assert!(report.contains("excluded: 1 "), "{report}");
        assert_eq!(json(&checked)["rows"][1]["overloaded"], json!(true));
    }
}
