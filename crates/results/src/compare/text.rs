// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison as text for a terminal.

use super::{
    comparison::{CellPair, Comparison, MetricPair},
    rule::{Change, Verdict},
};
use longhaul_report::columns::{self, align};
use longhaul_report::{
    metric::{Metric, format_factor},
    registry::Better,
};

/// Returns the comparison as lines, each with a newline: both results, settings that differ, the table of metrics,
/// cells that only one result has, and the number of significant differences. Without `all`, the table has only the
/// main metric and significant differences.
pub(super) fn render(comparison: &Comparison, all: bool) -> String {
    let heading = ["cell", "metric", "baseline", "candidate", "ratio", ""]
        .map(str::to_owned)
        .to_vec();
    let rows = comparison
        .cells
        .iter()
        .flat_map(|pair| rows(comparison, pair, all));
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let sides = [
        ("baseline", &comparison.baseline),
        ("candidate", &comparison.candidate),
    ];
    let mut lines: Vec<String> = sides
        .iter()
        .map(|(name, side)| {
            format!(
                "{name}: {} ({}, {})",
                side.name, side.scenario, side.started
            )
        })
        .collect();
    for (name, side) in sides {
        let caveats = side.caveats().into_iter();
        lines.extend(caveats.map(|caveat| format!("{name}: {caveat}")));
    }
    let differing = comparison.settings.iter();
    lines.extend(differing.map(|setting| {
        format!(
            "{}: {} → {}",
            setting.name,
            or_dash(&setting.baseline),
            or_dash(&setting.candidate)
        )
    }));
    lines.push(String::new());
    lines.extend(align(&rows));
    lines.push(String::new());
    lines.extend(unmatched_cells(
        "the baseline",
        &comparison.baseline_only_cells,
    ));
    lines.extend(unmatched_cells(
        "the candidate",
        &comparison.candidate_only_cells,
    ));
    lines.push(describe_counts(comparison));
    lines.extend(comparison.describe_false_positives());
    columns::join_lines(&lines)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

fn rows(comparison: &Comparison, cell: &CellPair, all: bool) -> Vec<Vec<String>> {
    let main = comparison.main_metric.as_deref();
    let is_listed = |(name, pair): &(&String, &MetricPair)| {
        all || pair.is_significant() || Some(name.as_str()) == main
    };
    let row = |(name, pair): (&String, &MetricPair)| {
        let metric = Metric::of(name);
        vec![
            cell.name.clone(),
            metric.label.clone(),
            pair.baseline.text(&metric),
            pair.candidate.text(&metric),
            pair.ratio.map(format_factor).unwrap_or_default(),
            verdict_label(pair.verdict, metric.better).to_owned(),
        ]
    };
    cell.metrics.iter().filter(is_listed).map(row).collect()
}

fn verdict_label(verdict: Verdict, better: Better) -> &'static str {
    match (verdict.change(better), verdict) {
        (Change::Same, _) => "",
        (Change::Unknown, Verdict::Overloaded) => "? emulator late",
        (Change::Unknown, _) => "? one run",
        (Change::Better, _) => "▲ better",
        (Change::Worse, _) => "▼ worse",
        (Change::Other, _) => "≠ differs",
    }
}

fn unmatched_cells(side: &str, names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("only in {side}: {}", names.join("; ")))
}

/// Describes how many metrics differ significantly, and how many have no verdict.
fn describe_counts(comparison: &Comparison) -> String {
    let verdicts = || comparison.metrics().map(|pair| pair.verdict);
    let count = |verdict| verdicts().filter(|found| *found == verdict).count();
    let differ = comparison.metrics().filter(|pair| pair.is_significant());
    let without_verdict = [
        (count(Verdict::Unknown), "one run"),
        (count(Verdict::Overloaded), "emulator late"),
    ];
    let reasons: Vec<String> = without_verdict
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, reason)| format!("{count} ({reason})"))
        .collect();
    let without_verdict = if reasons.is_empty() {
        String::new()
    } else {
        format!("; no verdict for {}", reasons.join(" and "))
    };
    format!(
        "{} of {} metrics differ significantly{without_verdict}",
        differ.count(),
        verdicts().count()
    )
}
