// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two results as one offline page: the number of significant differences, a chart of the largest ratios, then a table for each metric.

use super::{
    comparison::{CellPair, CheckPair, Comparison, MetricPair, SettingDifference, Side},
    rule::{Change, describe_significance_rule},
};
use indexmap::IndexMap;
use longhaul_report::metric::{Metric, format_factor};
use longhaul_report::{
    page::Page,
    table::{Table, table},
};
use maud::{Markup, html as markup};

/// Maximum number of ratios in the chart, which shows those furthest from 1.
const RATIOS_MAX: usize = 40;
/// Ticks of the axis of ratios, from coarse to fine. Labels of five ticks do not overlap on a phone.
const TICKS: [[f64; 5]; 7] = [
    [1e-4, 0.01, 1.0, 100.0, 1e4],
    [0.01, 0.1, 1.0, 10.0, 100.0],
    [0.1, 0.3, 1.0, 3.0, 10.0],
    [0.2, 0.5, 1.0, 2.0, 5.0],
    [0.5, 0.7, 1.0, 1.4, 2.0],
    [0.8, 0.9, 1.0, 1.1, 1.25],
    [0.96, 0.98, 1.0, 1.02, 1.04],
];
/// Height of a row of the chart, in pixels.
const ROW_PX: usize = 26;

/// Returns the whole page.
pub(crate) fn html(comparison: &Comparison) -> String {
    let title = format!(
        "{} compared with {}",
        comparison.candidate.name, comparison.baseline.name
    );
    let entries = cell_metrics(comparison);
    Page {
        title: &title,
        longhaul: longhaul_command::version(),
        header: heading(comparison, &entries),
        main: markup! {
            (ratio_chart(&entries))
            (tables(&entries))
            (unmatched_cells(comparison))
            (checks(comparison))
            (sides(comparison))
        },
        ..Page::default()
    }
    .html()
}

/// Metric of a cell that both results have.
struct CellMetric<'a> {
    cell: &'a str,
    name: &'a str,
    metric: Metric,
    pair: &'a MetricPair,
    change: Change,
}

fn cell_metrics(comparison: &Comparison) -> Vec<CellMetric<'_>> {
    comparison.cells.iter().flat_map(cell_metrics_of).collect()
}

fn cell_metrics_of(pair: &CellPair) -> impl Iterator<Item = CellMetric<'_>> {
    let metrics = pair.metrics.iter();
    metrics.map(|found| cell_metric(&pair.name, found))
}

fn cell_metric<'a>(cell: &'a str, (name, pair): (&'a String, &'a MetricPair)) -> CellMetric<'a> {
    let metric = Metric::of(name);
    CellMetric {
        cell,
        name,
        change: pair.verdict.change(metric.better),
        metric,
        pair,
    }
}

/// Returns the heading: the number of metrics, over all cells, that are better, worse or different.
fn heading(comparison: &Comparison, entries: &[CellMetric<'_>]) -> Markup {
    let count = |change_wanted: Change| {
        entries
            .iter()
            .filter(|entry| entry.change == change_wanted)
            .count()
    };
    let (better, worse) = (count(Change::Better), count(Change::Worse));
    let other = count(Change::Other);
    let (same, unknown) = (count(Change::Same), count(Change::Unknown));
    markup! {
        p.kicker { "longhaul lab compare" }
        h1 { (comparison.candidate.name) " compared with " (comparison.baseline.name) }
        p.answer {
            @match (better, worse, other) {
                (0, 0, 0) => { strong { "No metric" } " differs significantly" }
                (better, worse, other) => {
                    "The candidate is better in " strong { (better) } " metrics and worse in " strong { (worse) }
                    @if other > 0 { "; " strong { (other) } " differ without being better or worse" }
                }
            }
        }
        p.detail {
            "Compared: " (entries.len()) " metrics of all cells; no significant difference in " (same)
            @if unknown > 0 { ", no verdict for " (unknown) " (one run, or the emulator was late)" }
            "."
            @if let Some(text) = comparison.describe_false_positives() { " " (text) "." }
        }
        @for (side, of) in [("Baseline", &comparison.baseline), ("Candidate", &comparison.candidate)] {
            @for text in of.caveats() { p.note { (side) ": " (text) "." } }
        }
        details {
            summary { "When a difference is significant" }
            ul { @for line in describe_significance_rule() { li { (line) } } }
        }
    }
}

/// Returns the chart of ratios: candidate over baseline for each metric of a cell, on a logarithmic axis around 1.
fn ratio_chart(entries: &[CellMetric<'_>]) -> Markup {
    let mut ratios: Vec<Ratio<'_>> = entries.iter().filter_map(Ratio::new).collect();
    let all = ratios.len();
    ratios.sort_by(|a, b| b.distance().total_cmp(&a.distance()));
    ratios.truncate(RATIOS_MAX);
    let most = ratios
        .iter()
        .map(|ratio| (ratio.least.ln().abs()).max(ratio.most.ln().abs()))
        .fold(0.05, f64::max)
        .exp();
    // Position on a logarithmic axis around 1, as a share of the width.
    let scale = |ratio: f64| 0.5 + ratio.ln() / most.ln() / 2.0;
    markup! {
        @if !ratios.is_empty() {
            figure.compared {
                figcaption {
                    h2 { "Ratio of candidate to baseline" }
                    p {
                        "Dot: ratio of the medians; line: range of the ratio over the runs. Filled dot: significant difference, "
                        "blue if better, orange if worse."
                        @if all > RATIOS_MAX { " Only the " (RATIOS_MAX) " of " (all) " ratios furthest from 1 are drawn." }
                    }
                }
                div.ratios role="img" aria-label=(describe(&ratios)) {
                    @for ratio in &ratios { (row(ratio, &scale)) }
                    (axis(&scale))
                }
            }
        }
    }
}

/// Ratio of candidate to baseline in one metric of a cell, with the range that follows from the ranges of the runs.
struct Ratio<'a> {
    cell_metric: &'a CellMetric<'a>,
    median: f64,
    least: f64,
    most: f64,
}

impl<'a> Ratio<'a> {
    fn new(entry: &'a CellMetric<'a>) -> Option<Self> {
        let (baseline, candidate) = (entry.pair.baseline, entry.pair.candidate);
        let positive = baseline.min > 0.0 && candidate.min > 0.0;
        positive.then(|| Self {
            cell_metric: entry,
            median: candidate.median / baseline.median,
            least: candidate.min / baseline.max,
            most: candidate.max / baseline.min,
        })
    }

    fn distance(&self) -> f64 {
        self.median.ln().abs()
    }
}

fn describe(ratios: &[Ratio<'_>]) -> String {
    let describe_ratio = |ratio: &Ratio<'_>| {
        format!(
            "{} {}: {}",
            ratio.cell_metric.cell,
            ratio.cell_metric.metric.label,
            format_factor(ratio.median)
        )
    };
    ratios
        .iter()
        .map(describe_ratio)
        .collect::<Vec<_>>()
        .join("; ")
}

fn class(change: Change) -> &'static str {
    match change {
        Change::Better => "better",
        Change::Worse => "worse",
        Change::Other => "differs",
        Change::Same | Change::Unknown => "same",
    }
}

fn row(ratio: &Ratio<'_>, scale: &dyn Fn(f64) -> f64) -> Markup {
    let at = |value: f64| format!("{:.2}%", scale(value) * 100.0);
    let class = class(ratio.cell_metric.change);
    markup! {
        div.ratio {
            span.of { (ratio.cell_metric.cell) " · " (ratio.cell_metric.metric.label) }
            svg height=(ROW_PX) {
                line.reference x1=(at(1.0)) x2=(at(1.0)) y1="0" y2=(ROW_PX) {}
                line.range.(class) x1=(at(ratio.least)) x2=(at(ratio.most)) y1="13" y2="13" {}
                circle.(class) cx=(at(ratio.median)) cy="13" r="5.5" {}
            }
            span.times { (format_factor(ratio.median)) @if class != "same" { " " (class) } }
        }
    }
}

fn axis(scale: &dyn Fn(f64) -> f64) -> Markup {
    let is_inside = |tick: &f64| (0.0..=1.0).contains(&scale(*tick));
    let ticks = TICKS.iter().find(|ticks| ticks.iter().all(is_inside));
    markup! {
        div.ratio {
            span.of {}
            svg height="20" {
                @for &tick in ticks.into_iter().flatten() {
                    text.small x={ (format!("{:.2}", scale(tick) * 100.0)) "%" } y="15" text-anchor="middle" { (format_factor(tick)) }
                }
            }
            span.times {}
        }
    }
}

/// Returns a table for each metric, with a row for each cell.
fn tables(entries: &[CellMetric<'_>]) -> Markup {
    let mut metrics: IndexMap<&str, Vec<&CellMetric<'_>>> = IndexMap::new();
    for entry in entries {
        metrics.entry(entry.name).or_default().push(entry);
    }
    markup! {
        section {
            h2 { "All metrics" }
            @for entries in metrics.values() { (metric_table(&entries[0].metric, entries)) }
        }
    }
}

fn metric_table(metric: &Metric, entries: &[&CellMetric<'_>]) -> Markup {
    let row = |entry: &&CellMetric<'_>| {
        markup! { tr {
            th scope="row" { (entry.cell) }
            @for found in [&entry.pair.baseline, &entry.pair.candidate] { td { (found.markup(metric)) } }
            td { (entry.pair.ratio.map_or("–".to_owned(), format_factor)) }
            td { (verdict(entry.change)) }
        } }
    };
    let table = Table {
        label: &metric.label,
        class: "values",
        caption: &format!("{}: median of the runs [minimum – maximum]", metric.label),
    };
    table.render(
        ["Cell", "Baseline", "Candidate", "Ratio", "Verdict"],
        entries.iter().map(row),
    )
}

fn verdict(change: Change) -> Markup {
    markup! {
        @match change {
            Change::Better => { span.pass { "▲ better" } }
            Change::Worse => { span.fail { "▼ worse" } }
            Change::Other => { "≠ differs" }
            Change::Same => { "not significant" }
            Change::Unknown => { "no verdict" }
        }
    }
}

/// Returns the names of cells that only one result has.
fn unmatched_cells(comparison: &Comparison) -> Markup {
    let sides = [
        ("the baseline", &comparison.baseline_only_cells),
        ("the candidate", &comparison.candidate_only_cells),
    ];
    markup! {
        @for (side, names) in sides {
            @if !names.is_empty() { p { "Only in " (side) ": " (names.join("; ")) } }
        }
    }
}

/// Returns the table of checks that either result has.
fn checks(comparison: &Comparison) -> Markup {
    let text = |pass: Option<bool>| match pass {
        Some(true) => "✓ pass",
        Some(false) => "✗ fail",
        None => "–",
    };
    let row = |check: &CheckPair| {
        markup! { tr {
            th scope="row" { (check.name) }
            @for pass in [check.baseline, check.candidate] {
                td { span.pass[pass == Some(true)].fail[pass == Some(false)] { (text(pass)) } }
            }
        } }
    };
    let rows = comparison.checks.iter().map(row);
    markup! {
        @if !comparison.checks.is_empty() {
            section { h2 { "Checks" } (table("Checks", ["Check", "Baseline", "Candidate"], rows)) }
        }
    }
}

/// Returns the table of properties of both results, then of the settings that differ.
fn sides(comparison: &Comparison) -> Markup {
    type SideText = fn(&Side) -> String;
    let rows: [(&str, SideText); 6] = [
        ("Result", |side| side.name.clone()),
        ("Scenario", |side| side.scenario.clone()),
        ("longhaul", |side| side.longhaul.clone()),
        ("Started", |side| {
            side.started.strftime("%Y-%m-%d %H:%M UTC").to_string()
        }),
        ("Kernel", |side| side.kernel.clone()),
        ("Quick", |side| {
            if side.quick { "yes" } else { "no" }.to_owned()
        }),
    ];
    let row = |name: &str, baseline: &str, candidate: &str| markup! { tr { th scope="row" { (name) } td { (baseline) } td { (candidate) } } };
    let property_rows = rows.map(|(name, text)| {
        row(
            name,
            &text(&comparison.baseline),
            &text(&comparison.candidate),
        )
    });
    let names = rows.map(|(name, _)| name);
    let other_settings_rows = other_settings(comparison, &names);
    let other_settings_rows = other_settings_rows
        .map(|setting| row(&setting.name, &setting.baseline, &setting.candidate));
    markup! {
        section {
            h2 { "Settings" }
            (table("Settings", ["", "Baseline", "Candidate"], property_rows.into_iter().chain(other_settings_rows)))
        }
    }
}

/// Returns the settings that differ and are not among the `listed` rows. Letter case is ignored.
fn other_settings<'a>(
    comparison: &'a Comparison,
    listed: &[&str],
) -> impl Iterator<Item = &'a SettingDifference> {
    let listed: Vec<String> = listed.iter().map(|name| name.to_lowercase()).collect();
    let new = move |setting: &&SettingDifference| !listed.contains(&setting.name.to_lowercase());
    comparison.settings.iter().filter(new)
}

#[cfg(test)]
mod tests {
    use super::{super::comparison::compare, *};
    use crate::report::fixtures;
    use longhaul_testprograms::browser::assert_good;

    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn renders_accessible_page_of_two_results() {
        let a = fixtures::every_figure();
        let mut b = a.clone();
        for cell in &mut b.cells[..3] {
            for run in &mut cell.runs {
                run.metrics["goodput_bps"] *= 1.5;
            }
            cell.summarise();
        }
        b.checks[0].pass = false;
        b.seed += 1;
        let page = html(&compare("a", &a, "b", &b).unwrap());
        assert!(page.contains(
            "The candidate is better in <strong>3</strong> metrics and worse in <strong>0</strong>"
        ));
        assert_eq!(page.matches("▲ better").count(), 3);
        assert!(page.contains("✗ fail") && page.contains("<th scope=\"row\">seed</th>"));
        assert_good(&page, 0);
    }

    #[test]
    fn escapes_names() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let a = fixtures::every_figure();
        let comparison = compare(EVIL, &a, EVIL, &a).unwrap();
        assert!(!html(&comparison).contains(EVIL));
    }
}
