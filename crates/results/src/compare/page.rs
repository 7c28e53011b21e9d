// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two runs side by side as one offline page: what differs beyond noise first, a picture of all ratios,
//! then every figure.

use super::{
    comparison::{Checked, Comparison, Figures, Pair, Setting, Side},
    rule::{Change, rule_of_noise},
};
use indexmap::IndexMap;
use longhaul_report::metric::{Metric, times};
use longhaul_report::{
    page::Page,
    scale::Scale,
    table::{Table, table},
};
use maud::{Markup, html as markup};

/// Ratios that are drawn; of more those that differ most.
const DRAWN_MAX: usize = 40;
/// Height of a row of the picture.
const ROW_PX: usize = 26;

/// The whole page.
pub(crate) fn html(comparison: &Comparison) -> String {
    let title = format!("{} and {}", comparison.a.name, comparison.b.name);
    let places = places(comparison);
    Page {
        title: &title,
        longhaul: longhaul_command::version(),
        header: heading(comparison, &places),
        main: markup! {
            (picture(&places))
            (tables(&places))
            (alone(comparison))
            (checks(comparison))
            (sides(comparison))
        },
        ..Page::default()
    }
    .html()
}

/// A metric of a cell that both have.
struct Place<'a> {
    cell: &'a str,
    name: &'a str,
    metric: Metric,
    figures: &'a Figures,
    change: Change,
}

fn places(comparison: &Comparison) -> Vec<Place<'_>> {
    comparison.cells.iter().flat_map(of_cell).collect()
}

fn of_cell(pair: &Pair) -> impl Iterator<Item = Place<'_>> {
    let metrics = pair.metrics.iter();
    metrics.map(|found| place(&pair.name, found))
}

fn place<'a>(cell: &'a str, (name, figures): (&'a String, &'a Figures)) -> Place<'a> {
    let metric = Metric::of(name);
    Place {
        cell,
        name,
        change: figures.verdict.change(metric.better),
        metric,
        figures,
    }
}

/// How many figures differ, and which way.
fn heading(comparison: &Comparison, places: &[Place<'_>]) -> Markup {
    let count = |wanted: Change| places.iter().filter(|place| place.change == wanted).count();
    let (better, worse) = (count(Change::Better), count(Change::Worse));
    let other = count(Change::Other);
    let (same, unknown) = (count(Change::Same), count(Change::Unknown));
    markup! {
        p.kicker { "longhaul lab compare" }
        h1 { (comparison.a.name) " and " (comparison.b.name) }
        p.answer {
            @match (better, worse, other) {
                (0, 0, 0) => { strong { "No figure" } " differs beyond noise" }
                (better, worse, other) => {
                    "B is better in " strong { (better) } " and worse in " strong { (worse) } " figures"
                    @if other > 0 { "; " strong { (other) } " differ of which neither is better" }
                }
            }
        }
        p.beside {
            "Of " (places.len()) " figures " (same) " don’t differ by more than noise"
            @if unknown > 0 { "; of " (unknown) " the noise is not known, since there was one run, or the machine was too busy" }
            "."
            @if let Some(said) = comparison.chance_said() { " To be sure: " (said) "." }
        }
        @for (side, of) in [("A", &comparison.a), ("B", &comparison.b)] {
            @for said in of.reservations() { p.note { (side) ": " (said) "." } }
        }
        details {
            summary { "What “beyond noise” means" }
            ul { @for line in rule_of_noise() { li { (line) } } }
        }
    }
}

/// B over A for each figure that both have, on a logarithmic axis about one.
fn picture(places: &[Place<'_>]) -> Markup {
    let mut ratios: Vec<Ratio<'_>> = places.iter().filter_map(Ratio::of).collect();
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
    place: &'a Place<'a>,
    median: f64,
    least: f64,
    most: f64,
}

impl<'a> Ratio<'a> {
    fn of(place: &'a Place<'a>) -> Option<Self> {
        let (a, b) = (place.figures.a, place.figures.b);
        let positive = a.min > 0.0 && b.min > 0.0;
        positive.then(|| Self {
            place,
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
            ratio.place.cell,
            ratio.place.metric.label,
            times(ratio.median)
        )
    };
    ratios.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn class(change: Change) -> &'static str {
    match change {
        Change::Better => "better",
        Change::Worse => "worse",
        Change::Other => "differs",
        Change::Same | Change::Unknown => "same",
    }
}

fn row(ratio: &Ratio<'_>, scale: Scale) -> Markup {
    let at = |value: f64| format!("{:.2}%", scale.at(value) * 100.0);
    let class = class(ratio.place.change);
    markup! {
        div.ratio {
            span.of { (ratio.place.cell) " · " (ratio.place.metric.label) }
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
fn tables(places: &[Place<'_>]) -> Markup {
    let mut metrics: IndexMap<&str, Vec<&Place<'_>>> = IndexMap::new();
    for place in places {
        metrics.entry(place.name).or_default().push(place);
    }
    markup! {
        section {
            h2 { "Every figure" }
            @for places in metrics.values() { (of_metric(&places[0].metric, places)) }
        }
    }
}

fn of_metric(metric: &Metric, places: &[&Place<'_>]) -> Markup {
    let row = |place: &&Place<'_>| {
        markup! { tr {
            th scope="row" { (place.cell) }
            @for found in [&place.figures.a, &place.figures.b] { td { (found.markup(metric)) } }
            td { (place.figures.ratio.map_or("–".to_owned(), times)) }
            td { (verdict(place.change)) }
        } }
    };
    let table = Table {
        label: &metric.label,
        class: "values",
        caption: &format!("{}: median of the runs [smallest – largest]", metric.label),
    };
    table.drawn(
        ["Cell", "A", "B", "B / A", "Beyond noise"],
        places.iter().map(row),
    )
}

fn verdict(change: Change) -> Markup {
    markup! {
        @match change {
            Change::Better => { span.pass { "▲ better" } }
            Change::Worse => { span.fail { "▼ worse" } }
            Change::Other => { "≠ differs" }
            Change::Same => { "no" }
            Change::Unknown => { "not known" }
        }
    }
}

/// Cells that only one of the runs has.
fn alone(comparison: &Comparison) -> Markup {
    let sides = [("A", &comparison.only_a), ("B", &comparison.only_b)];
    markup! {
        @for (side, names) in sides {
            @if !names.is_empty() { p { "Only in " (side) ": " (names.join("; ")) } }
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
    let row = |check: &Checked| {
        markup! { tr {
            th scope="row" { (check.name) }
            @for pass in [check.a, check.b] {
                td { span.pass[pass == Some(true)].fail[pass == Some(false)] { (said(pass)) } }
            }
        } }
    };
    let rows = comparison.checks.iter().map(row);
    markup! {
        @if !comparison.checks.is_empty() {
            section { h2 { "Checks" } (table("Checks", ["Claim", "A", "B"], rows)) }
        }
    }
}

/// What each run was, then in what else the two differ.
fn sides(comparison: &Comparison) -> Markup {
    type Said = fn(&Side) -> String;
    let rows: [(&str, Said); 6] = [
        ("Result", |side| side.name.clone()),
        ("Scenario", |side| side.scenario.clone()),
        ("longhaul", |side| side.longhaul.clone()),
        ("Began", |side| {
            side.started.strftime("%Y-%m-%d %H:%M UTC").to_string()
        }),
        ("Kernel", |side| side.kernel.clone()),
        ("Quick", |side| {
            if side.quick { "yes" } else { "no" }.to_owned()
        }),
    ];
    let row = |name: &str, a: &str, b: &str| markup! { tr { th scope="row" { (name) } td { (a) } td { (b) } } };
    let both = rows.map(|(name, said)| row(name, &said(&comparison.a), &said(&comparison.b)));
    let names = rows.map(|(name, _)| name);
    let others = other_settings(comparison, &names);
    let others = others.map(|setting| row(&setting.name, &setting.a, &setting.b));
    markup! {
        section {
            h2 { "The two runs" }
            (table("The two runs", ["", "A", "B"], both.into_iter().chain(others)))
        }
    }
}

/// Those that differ and have no row yet, whatever the letters' case.
fn other_settings<'a>(
    comparison: &'a Comparison,
    shown: &[&str],
) -> impl Iterator<Item = &'a Setting> {
    let shown: Vec<String> = shown.iter().map(|name| name.to_lowercase()).collect();
    let new = move |setting: &&Setting| !shown.contains(&setting.name.to_lowercase());
    comparison.settings.iter().filter(new)
}

#[cfg(test)]
mod tests {
    use super::{super::comparison::of, *};
    use crate::report::made_up;
    use longhaul_testbed::browser::assert_good;

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
        b.seed += 1;
        let page = html(&of(("a", &a), ("b", &b)).unwrap());
        assert!(
            page.contains(
                "B is better in <strong>3</strong> and worse in <strong>0</strong> figures"
            )
        );
        assert_eq!(page.matches("▲ better").count(), 3);
        assert!(page.contains("✗ fail") && page.contains("<th scope=\"row\">seed</th>"));
        assert_good(&page, 0);
    }

    #[test]
    fn names_stay_texts() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let a = made_up::every_figure();
        let comparison = of((EVIL, &a), (EVIL, &a)).unwrap();
        assert!(!html(&comparison).contains(EVIL));
    }
}
