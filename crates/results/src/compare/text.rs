// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison as text for a terminal.

use super::{
    comparison::{CellPair, Comparison, Figures},
    rule::{Change, Verdict},
};
use longhaul_report::columns::{self, align};
use longhaul_report::{
    metric::{Metric, format_factor},
    registry::Better,
};

/// Returns the table, other differences and a count, each line terminated. Without `all`, only the main metric and
/// differences are listed.
pub(super) fn render(comparison: &Comparison, all: bool) -> String {
    let heading = ["cell", "metric", "A", "B", "B / A", ""]
        .map(str::to_owned)
        .to_vec();
    let rows = comparison
        .cells
        .iter()
        .flat_map(|pair| rows(comparison, pair, all));
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let mut lines = vec![
        format!(
            "A: {} ({}, {})",
            comparison.a.name, comparison.a.scenario, comparison.a.started
        ),
        format!(
            "B: {} ({}, {})",
            comparison.b.name, comparison.b.scenario, comparison.b.started
        ),
    ];
    for (side, of) in [("A", &comparison.a), ("B", &comparison.b)] {
        let caveats = of.caveats().into_iter();
        lines.extend(caveats.map(|caveat| format!("{side}: {caveat}")));
    }
    let differing = comparison.settings.iter();
    lines.extend(differing.map(|setting| {
        format!(
            "{}: A {}, B {}",
            setting.name,
            or_dash(&setting.a),
            or_dash(&setting.b)
        )
    }));
    lines.push(String::new());
    lines.extend(align(&rows));
    lines.push(String::new());
    lines.extend(unmatched_cells("A", &comparison.only_a));
    lines.extend(unmatched_cells("B", &comparison.only_b));
    lines.push(count(comparison));
    lines.extend(comparison.describe_chance());
    columns::join_lines(&lines)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

fn rows(comparison: &Comparison, pair: &CellPair, all: bool) -> Vec<Vec<String>> {
    let main = comparison.main_metric.as_deref();
    let is_listed = |(name, figures): &(&String, &Figures)| {
        all || figures.is_significant() || Some(name.as_str()) == main
    };
    let row = |(name, figures): (&String, &Figures)| {
        let metric = Metric::of(name);
        vec![
            pair.name.clone(),
            metric.label.clone(),
            figures.a.text(&metric),
            figures.b.text(&metric),
            figures.ratio.map(format_factor).unwrap_or_default(),
            mark(figures.verdict, metric.better).to_owned(),
        ]
    };
    pair.metrics.iter().filter(is_listed).map(row).collect()
}

fn mark(verdict: Verdict, better: Better) -> &'static str {
    match (verdict.change(better), verdict) {
        (Change::Same, _) => "",
        (Change::Unknown, Verdict::Overloaded) => "? too busy",
        (Change::Unknown, _) => "? one run",
        (Change::Better, _) => "▲ better",
        (Change::Worse, _) => "▼ worse",
        (Change::Other, _) => "≠ differs",
    }
}

fn unmatched_cells(side: &str, names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("only in {side}: {}", names.join("; ")))
}

fn count(comparison: &Comparison) -> String {
    let verdicts = || comparison.figures().map(|figures| figures.verdict);
    let count = |verdict| verdicts().filter(|found| *found == verdict).count();
    let differ = comparison
        .figures()
        .filter(|figures| figures.is_significant());
    let unknown = match count(Verdict::Unknown) {
        0 => String::new(),
        unknown => format!(", {unknown} of single runs, about which nothing is said"),
    };
    let overloaded = match count(Verdict::Overloaded) {
        0 => String::new(),
        some => format!(", {some} of runs that the machine was too busy for, likewise"),
    };
    format!(
        "{} of {} figures differ beyond noise{unknown}{overloaded}",
        differ.count(),
        verdicts().count()
    )
}
