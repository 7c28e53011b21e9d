// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison for a terminal.

use super::{
    comparison::{Comparison, Figures, Pair},
    rule::{Change, Verdict},
};
use longhaul_report::columns::{self, aligned};
use longhaul_report::{
    metric::{Metric, times},
    registry::Better,
};

/// The table, what else differs, and the count of it all, each line ended. Without `all` only the main metric and
/// what differs is listed.
pub(super) fn text(comparison: &Comparison, all: bool) -> String {
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
        let reservations = of.reservations().into_iter();
        lines.extend(reservations.map(|said| format!("{side}: {said}")));
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
    lines.extend(aligned(&rows));
    lines.push(String::new());
    lines.extend(alone("A", &comparison.only_a));
    lines.extend(alone("B", &comparison.only_b));
    lines.push(count(comparison));
    lines.extend(comparison.chance_said());
    columns::text(&lines)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

fn rows(comparison: &Comparison, pair: &Pair, all: bool) -> Vec<Vec<String>> {
    let main = comparison.main_metric.as_deref();
    let listed = |(name, figures): &(&String, &Figures)| {
        all || figures.differ() || Some(name.as_str()) == main
    };
    let row = |(name, figures): (&String, &Figures)| {
        let metric = Metric::of(name);
        vec![
            pair.name.clone(),
            metric.label.clone(),
            figures.a.text(&metric),
            figures.b.text(&metric),
            figures.ratio.map(times).unwrap_or_default(),
            mark(figures.verdict, metric.better).to_owned(),
        ]
    };
    pair.metrics.iter().filter(listed).map(row).collect()
}

fn mark(verdict: Verdict, better: Better) -> &'static str {
    match (verdict.change(better), verdict) {
        (Change::Same, _) => "",
        (Change::Unknown, Verdict::Disturbed) => "? too busy",
        (Change::Unknown, _) => "? one run",
        (Change::Better, _) => "▲ better",
        (Change::Worse, _) => "▼ worse",
        (Change::Other, _) => "≠ differs",
    }
}

fn alone(side: &str, names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| format!("only in {side}: {}", names.join("; ")))
}

fn count(comparison: &Comparison) -> String {
    let verdicts = || comparison.figures().map(|figures| figures.verdict);
    let count = |verdict| verdicts().filter(|found| *found == verdict).count();
    let differ = comparison.figures().filter(|figures| figures.differ());
    let unknown = match count(Verdict::Unknown) {
        0 => String::new(),
        unknown => format!(", {unknown} of single runs, about which nothing is said"),
    };
    let disturbed = match count(Verdict::Disturbed) {
        0 => String::new(),
        some => format!(", {some} of runs that the machine was too busy for, likewise"),
    };
    format!(
        "{} of {} figures differ beyond noise{unknown}{disturbed}",
        differ.count(),
        verdicts().count()
    )
}
