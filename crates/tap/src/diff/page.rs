// SPDX-License-Identifier: MIT OR Apache-2.0
//! `diff.html`: the charts of both flows, one above the other on the same axes, in one offline file.

use super::{comparison::Comparison, side::Side, table::format_figure};
use crate::report::{STYLE, chart_scripts, paired};
use longhaul_report::{
    chart::Charts,
    metric::{Metric, format_factor},
    page::Page,
    table::table,
};
use maud::{Markup, html as markup};

/// Maximum number of figures in the heading.
const HEADLINE_FIGURES_MAX: usize = 3;

/// Returns the whole page.
pub(super) fn html(comparison: &Comparison, sides: [&Side<'_>; 2]) -> String {
    let views = sides.map(Side::view);
    let mut charts = Charts::default();
    let main = markup! {
        (figure_table(comparison))
        @match views {
            [Some(a), Some(b)] => { (paired::section([a, b], &mut charts)) }
            _ => { p { "No charts: one of the flows has no chart data. "
                "Analyse again with more " code { "--flows" } "." } }
        }
    };
    Page {
        title: &title(comparison),
        longhaul: longhaul_command::release(),
        more_style: STYLE,
        header: heading(comparison),
        main,
        footer: markup! { p.note { "As data: " a href="diff.json" { "diff.json" } } },
        scripts: chart_scripts(views.iter().flatten().map(|view| view.series), &charts),
    }
    .html()
}

fn title(comparison: &Comparison) -> String {
    format!("{} and {}", comparison.a.source, comparison.b.source)
}

fn heading(comparison: &Comparison) -> Markup {
    let goodput = comparison
        .figures
        .iter()
        .find(|figure| figure.name == "goodput_bps");
    markup! {
        p.kicker { "longhaul tap diff" }
        h1 { (title(comparison)) }
        @if let Some(ratio) = goodput.and_then(|figure| figure.ratio).map(format_factor) {
            @if ratio == format_factor(1.0) { p.answer { "B is " strong { "as fast" } " as A" } }
            @else { p.answer { "B has " strong { (ratio) } " the goodput of A" } }
        }
        dl {
            @for (side, named) in [("A", &comparison.a), ("B", &comparison.b)] {
                dt { (side) } dd { (named.name) br; (named.verdict) }
            }
        }
    }
}

fn figure_table(comparison: &Comparison) -> Markup {
    let lines = comparison.figures.iter();
    let lines =
        lines.map(|figure| table_row(&format_figure(figure), comparison.is_significant(figure)));
    markup! {
        section id="figures" {
            h2 { (headline(comparison)) }
            p.note { "Significant: differs by a tenth or more, and counts by three standard deviations." }
            (table("Figures", ["", "A", "B", "B/A", ""], lines))
        }
    }
}

/// Returns the heading: the figures that differ most.
fn headline(comparison: &Comparison) -> String {
    let label = |name: &&str| Metric::of(name).label;
    let most: Vec<String> = comparison
        .significant
        .iter()
        .take(HEADLINE_FIGURES_MAX)
        .map(label)
        .collect();
    if most.is_empty() {
        "No significant difference".to_owned()
    } else {
        format!("Largest differences: {}", most.join(", "))
    }
}

fn table_row([name, a, b, ratio]: &[String; 4], is_significant: bool) -> Markup {
    markup! {
        tr {
            th scope="row" { (name) } td.number { (a) } td.number { (b) } td.number { (ratio) }
            td.significant { @if is_significant { "significant" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{AnalysisReport, browser_tests, fixtures};
    use longhaul_testprograms::browser::{assert_accessible, assert_fits};
    use std::path::Path;

    fn render(a: &AnalysisReport, b: &AnalysisReport) -> String {
        let [a, b] = [("a", a), ("<b>", b)]
            .map(|(path, of)| Side::select(Path::new(path), of, None).unwrap());
        html(&Comparison::new(&a, &b), [&a, &b])
    }

    #[test]
    fn pairs_charts_of_the_same_kind() {
        let a = fixtures::report();
        let mut b = a.clone();
        // Nothing was queued on B's path.
        b.chart_series[0].columns.remove("queue_max_bytes");
        let page = render(&a, &b);
        let kinds: Vec<&str> = page
            .split("data-chart=\"")
            .skip(1)
            .map(|rest| &rest[..rest.find('"').unwrap()])
            .collect();
        let pairs = kinds.chunks(2).filter(|pair| pair.len() == 2);
        assert!(pairs.clone().all(|pair| pair[0] == pair[1]), "{kinds:?}");
        assert_eq!((pairs.count(), kinds.last()), (8, Some(&"queue")));
        assert!(page.contains("id=\"series-1\"") && page.contains("data-compare"));
        assert!(!page.contains("<b>"), "a path is a text");
    }

    #[test]
    fn shows_figures_and_hint_without_chart_data() {
        let a = fixtures::report();
        let mut b = a.clone();
        b.chart_series.clear();
        let page = render(&a, &b);
        assert!(page.contains("--flows") && page.contains("Goodput"));
        assert!(!page.contains("data-chart=\""));
    }

    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn shares_axes_between_flows_of_different_length() {
        const STEPS: &str = r##"
const heights = () => made.slice(0, 2).map((u) => `${u.scales.y.min.toFixed(0)}..${u.scales.y.max.toFixed(0)}`);
const steps = [
  () => dispatchEvent(new Event("beforeprint")),
  () => report(`first ${made.length} ${ranges()} ${new Set(heights()).size}`),
  () => press("+"),
  () => report(`zoomed ${ranges()} ${new Set(heights()).size}`),
  () => press("Escape"),
  () => report(`reset ${ranges()}`),
];
"##;
        let a = fixtures::report();
        let mut b = a.clone();
        for column in b.chart_series[0].columns.values_mut() {
            column.truncate(2000);
        }
        b.chart_series[0].bins = 2000;
        let page = render(&a, &b);
        let Some(reports) = browser_tests::run_steps(&page, STEPS) else {
            return;
        };
        let expected = [
            "first 18 0.000-29.992 1",
            "zoomed 7.498-22.494 1",
            "reset 0.000-29.992",
        ];
        assert_eq!(reports, [expected, expected], "on a desk, on a phone");
        assert_fits(&page);
        assert_accessible(&page);
    }
}
