// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two runs side by side as one offline page: what differs beyond noise first, a picture of all ratios,
//! then every figure.

use crate::{
    lab::{
        compare::{Comparison, Figures, Side, Verdict},
        metric::{Metric, times},
        summary::Summary,
    },
    page::{self, scale::Scale},
};
use indexmap::IndexMap;
use maud::{DOCTYPE, Markup, html as markup};

/// Ratios that are drawn; of more those that differ most.
const DRAWN_MAX: usize = 40;
/// Height of a row of the picture.
const ROW_PX: usize = 26;

/// The whole page.
pub(crate) fn html(comparison: &Comparison) -> String {
    let figures = figures(comparison);
    let title = format!("{} and {}", comparison.a.name, comparison.b.name);
    markup! {
        (DOCTYPE)
        html lang="en" {
            (page::head(&title, env!("LONGHAUL_VERSION"), ""))
            body {
                (page::skip_link())
                header { (heading(comparison, &figures)) }
                main id="main" tabindex="-1" {
                    (picture(&figures))
                    (tables(&figures))
                    (checks(comparison))
                    (settings(comparison))
                }
            }
        }
    }
    .into_string()
}

/// A metric of a cell in both.
#[derive(Clone, Copy)]
struct Figure<'a> {
    cell: &'a str,
    metric: &'a str,
    found: &'a Figures,
}

/// How B stands to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Better,
    Worse,
    /// The noise is not known.
    Unknown,
}

impl Figure<'_> {
    fn difference(&self) -> Difference {
        let better = match Metric::of(self.metric).less_is_better {
            true => Verdict::Lower,
            false => Verdict::Higher,
        };
        match self.found.verdict {
            Verdict::Noise => Difference::None,
            Verdict::Unknown => Difference::Unknown,
            verdict if verdict == better => Difference::Better,
            _ => Difference::Worse,
        }
    }
}

fn figures(comparison: &Comparison) -> Vec<Figure<'_>> {
    let cells = comparison.cells.iter();
    let figures = cells.flat_map(|pair| {
        pair.metrics.iter().map(|(metric, found)| Figure {
            cell: &pair.name,
            metric,
            found,
        })
    });
    figures.collect()
}

/// How many figures differ, and which way.
fn heading(comparison: &Comparison, figures: &[Figure<'_>]) -> Markup {
    let count = |wanted: Difference| {
        figures
            .iter()
            .filter(|figure| figure.difference() == wanted)
            .count()
    };
    let (better, worse, other) = (
        count(Difference::Better),
        count(Difference::Worse),
        count(Difference::Unknown),
    );
    let same = count(Difference::None);
    markup! {
        p.kicker { "longhaul lab compare" }
        h1 { (comparison.a.name) " and " (comparison.b.name) }
        p.answer {
            @match (better, worse) {
                (0, 0) if same == 0 => { "What noise is " strong { "isn’t known" } ": there was one run" }
                (0, 0) => { strong { "No figure" } " differs beyond noise" }
                (better, worse) => { "B is better in " strong { (better) } " and worse in " strong { (worse) } " figures" }
            }
        }
        p.beside {
            "Of " (figures.len()) " figures noise explains " (same)
            @if other > 0 { "; of " (other) " it is not known, since there was one run" }
            "."
        }
        p.note {
            "Beyond noise: with five runs and more on both sides by Mann-Whitney’s test (p < 0.01) and medians 2 % apart, "
            "with fewer where the runs’ ranges do not meet and medians are 5 % apart."
        }
    }
}

/// B over A for each figure that both have, on a logarithmic axis about one.
fn picture(figures: &[Figure<'_>]) -> Markup {
    let mut ratios: Vec<Ratio<'_>> = figures.iter().filter_map(Ratio::of).collect();
    let all = ratios.len();
    ratios.sort_by(|a, b| b.apart().total_cmp(&a.apart()));
    ratios.truncate(DRAWN_MAX);
    let most = ratios
        .iter()
        .map(|ratio| (ratio.least.ln().abs()).max(ratio.most.ln().abs()))
        .fold(0.05, f64::max)
        .exp();
    let scale = Scale::log([1.0 / most, most]);
    markup! {
        @if !ratios.is_empty() {
            figure.compared {
                figcaption {
                    h2 { "B over A" }
                    p {
                        "Above one B has more. Dot: the medians; line: as far as the runs’ ranges reach. Filled and "
                        "marked: beyond noise, blue better, orange worse."
                        @if all > DRAWN_MAX { " Drawn: the " (DRAWN_MAX) " of " (all) " that are furthest apart." }
                    }
                }
                div.ratios role="img" aria-label=(said(&ratios)) {
                    @for ratio in &ratios { (row(ratio, scale)) }
                    (axis(scale))
                }
            }
        }
    }
}

/// A figure's ratio with the range that the runs' ranges allow.
struct Ratio<'a> {
    figure: &'a Figure<'a>,
    median: f64,
    least: f64,
    most: f64,
}

impl<'a> Ratio<'a> {
    fn of(figure: &'a Figure<'a>) -> Option<Self> {
        let (a, b) = (figure.found.a, figure.found.b);
        let positive = a.min > 0.0 && b.min > 0.0;
        positive.then(|| Self {
            figure,
            median: b.median / a.median,
            least: b.min / a.max,
            most: b.max / a.min,
        })
    }

    fn apart(&self) -> f64 {
        self.median.ln().abs()
    }
}

fn said(ratios: &[Ratio<'_>]) -> String {
    let one = |ratio: &Ratio<'_>| {
        format!(
            "{} {}: {}",
            ratio.figure.cell,
            Metric::of(ratio.figure.metric).label,
            times(ratio.median)
        )
    };
    ratios.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn class(difference: Difference) -> &'static str {
    match difference {
        Difference::Better => "better",
        Difference::Worse => "worse",
        Difference::None | Difference::Unknown => "same",
    }
}

fn row(ratio: &Ratio<'_>, scale: Scale) -> Markup {
    let at = |value: f64| format!("{:.2}%", scale.at(value) * 100.0);
    let class = class(ratio.figure.difference());
    markup! {
        div.ratio {
            span.of { (ratio.figure.cell) " · " (Metric::of(ratio.figure.metric).label) }
            svg height=(ROW_PX) {
                line.limit x1=(at(1.0)) x2=(at(1.0)) y1="0" y2=(ROW_PX) {}
                line.reach.(class) x1=(at(ratio.least)) x2=(at(ratio.most)) y1="13" y2="13" {}
                circle.(class) cx=(at(ratio.median)) cy="13" r="5.5" {}
            }
            span.times { (times(ratio.median)) @if class != "same" { " " (class) } }
        }
    }
}

fn axis(scale: Scale) -> Markup {
    let marks = [0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0];
    let within = marks
        .into_iter()
        .filter(|mark| (0.0..=1.0).contains(&scale.at(*mark)));
    markup! {
        div.ratio {
            span.of {}
            svg height="20" {
                @for mark in within {
                    text.small x={ (format!("{:.2}", scale.at(mark) * 100.0)) "%" } y="15" text-anchor="middle" { (times(mark)) }
                }
            }
            span.times {}
        }
    }
}

/// A table for each metric: a row a cell.
fn tables(figures: &[Figure<'_>]) -> Markup {
    let mut metrics: IndexMap<&str, Vec<&Figure<'_>>> = IndexMap::new();
    for figure in figures {
        metrics.entry(figure.metric).or_default().push(figure);
    }
    markup! {
        section {
            h2 { "Every figure" }
            @for (name, figures) in &metrics { (table(name, figures)) }
        }
    }
}

fn table(name: &str, figures: &[&Figure<'_>]) -> Markup {
    let metric = Metric::of(name);
    markup! {
        div.scroll tabindex="0" role="region" aria-label=(metric.label) {
            table.values {
                caption { (metric.label) ": median of the runs [smallest – largest]" }
                thead { tr { @for name in ["Cell", "A", "B", "B / A", "Beyond noise"] { th scope="col" { (name) } } } }
                tbody { @for figure in figures { tr {
                    th scope="row" { (figure.cell) }
                    (value(&metric, &figure.found.a))
                    (value(&metric, &figure.found.b))
                    td { (figure.found.ratio.map_or("–".to_owned(), times)) }
                    td { (verdict(figure.difference())) }
                } } }
            }
        }
    }
}

fn value(metric: &Metric, found: &Summary) -> Markup {
    markup! {
        td {
            strong { (metric.print(found.median)) }
            @if found.min < found.max { small { "[" (metric.print(found.min)) " – " (metric.print(found.max)) "]" } }
        }
    }
}

fn verdict(difference: Difference) -> Markup {
    markup! {
        @match difference {
            Difference::Better => { span.pass { "▲ better" } }
            Difference::Worse => { span.fail { "▼ worse" } }
            Difference::None => { "no" }
            Difference::Unknown => { "not known" }
        }
    }
}

/// Checks of either run, those that turned over marked.
fn checks(comparison: &Comparison) -> Markup {
    let said = |pass: Option<bool>| match pass {
        Some(true) => "✓ pass",
        Some(false) => "✗ fail",
        None => "–",
    };
    markup! {
        @if !comparison.checks.is_empty() {
            section {
                h2 { "Checks" }
                div.scroll tabindex="0" role="region" aria-label="Checks" {
                    table {
                        thead { tr { @for name in ["Claim", "A", "B"] { th scope="col" { (name) } } } }
                        tbody { @for check in &comparison.checks { tr {
                            th scope="row" { (check.name) }
                            @for pass in [check.a, check.b] {
                                td { span.pass[pass == Some(true)].fail[pass == Some(false)] { (said(pass)) } }
                            }
                        } } }
                    }
                }
            }
        }
    }
}

/// In what the labs differ besides their figures.
fn settings(comparison: &Comparison) -> Markup {
    let began = |side: &Side| side.started.strftime("%Y-%m-%d %H:%M UTC").to_string();
    let sides = [&comparison.a, &comparison.b];
    markup! {
        section {
            h2 { "In what the two labs differ" }
            div.scroll tabindex="0" role="region" aria-label="In what the two labs differ" {
                table {
                    thead { tr { td {} th scope="col" { "A" } th scope="col" { "B" } } }
                    tbody {
                        tr { th scope="row" { "Result" } @for side in sides { td { (side.name) } } }
                        tr { th scope="row" { "Began" } @for side in sides { td { (began(side)) } } }
                        @for setting in &comparison.settings {
                            tr { th scope="row" { (setting.name) } td { (setting.a) } td { (setting.b) } }
                        }
                    }
                }
            }
            (alone("A", &comparison.only_a))
            (alone("B", &comparison.only_b))
        }
    }
}

fn alone(side: &str, cells: &[String]) -> Markup {
    markup! { @if !cells.is_empty() { p { "Only " (side) " has: " (cells.join("; ")) "." } } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lab::{compare, report::made_up},
        page::in_browser::assert_good,
    };

    #[test]
    fn two_runs_side_by_side_are_a_good_page() {
        let a = made_up::every_figure();
        let mut b = a.clone();
        for cell in &mut b.cells[..3] {
            for run in &mut cell.runs {
                run.metrics["goodput_bps"] *= 1.5;
            }
            cell.summarise();
        }
        b.checks[0].pass = false;
        let page = html(&compare::of(("a", &a), ("b", &b)).unwrap());
        assert!(
            page.contains(
                "B is better in <strong>3</strong> and worse in <strong>0</strong> figures"
            )
        );
        assert_eq!(page.matches("▲ better").count(), 3);
        assert_good(&page, 0);
    }

    #[test]
    fn names_stay_texts() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let a = made_up::every_figure();
        assert!(!html(&compare::of((EVIL, &a), (EVIL, &a)).unwrap()).contains(EVIL));
    }
}
