// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.html`: the verdict first, then the charts of the direction that is chosen, the table of all
//! flows, and how it was measured. maud escapes every text that comes from a capture.
//!
//! However long the capture, the page stays below 5 MiB: courses have a bounded number of bins
//! (`output`), at most [`SECTIONS_MAX`] directions and [`COURSES_BYTES`] of courses are in it, single
//! segments as `excerpts` bounds them, and of flows the rows of `Ranks::told`.

use super::{
    between::{self, Between},
    direction::{self, Shown},
    flows, method,
    quantity::{self, Amount},
    strip::mostly,
};
use crate::report::result::{Analysis, course::Drawn, finished::Finished};
use longhaul_report::{
    figure,
    page::{self, Page},
};
use maud::{Markup, PreEscaped, html as markup};

/// Data of the charts.
const COURSES_BYTES: usize = 3 << 20;
/// Directions with charts.
const SECTIONS_MAX: usize = 32;
/// Flows seen at two places: 40 kB each.
const PAIRS_MAX: usize = 8;

pub(crate) const STYLE: &str = include_str!("../../../web/tap.css");
const SCRIPT: &str = include_str!("../../../web/tap.js");

/// The whole page.
pub(crate) fn html(finished: &Finished) -> String {
    let analysis = &finished.analysis;
    let shown = chosen(finished);
    let between = pairs(analysis);
    Page {
        title: &title(analysis),
        longhaul: &analysis.longhaul,
        more_style: STYLE,
        header: heading(analysis, shown.first()),
        main: figures(analysis, &shown, &between),
        footer: method::raw(analysis),
        scripts: scripts(&shown, &between),
    }
    .html()
}

fn figures(analysis: &Analysis, shown: &[Shown<'_>], between: &[Between<'_>]) -> Markup {
    let ids: Vec<String> = shown.iter().map(Shown::id).collect();
    markup! {
        @if !shown.is_empty() {
            (picker(shown, between))
            @for (number, one) in shown.iter().enumerate() { (direction::section(*one, number)) }
        }
        @for (n, pair) in between.iter().enumerate() {
            (between::section(pair, shown.len() + 2 * n))
        }
        (flows::section(analysis, |id| ids.iter().any(|known| known == id)))
        (method::section(analysis))
    }
}

/// The directions that get charts: most payload first, as many as the page may hold.
fn chosen(finished: &Finished) -> Vec<Shown<'_>> {
    let of = |course| Shown::of(&finished.analysis, course);
    let mut all: Vec<Shown<'_>> = finished.courses.iter().filter_map(of).collect();
    all.sort_by_key(|shown| std::cmp::Reverse(shown.direction().data.unique_bytes));
    let mut left = COURSES_BYTES;
    let fits = |shown: &Shown<'_>| {
        let bytes = length(shown.course).saturating_sub(length(&shown.course.excerpts));
        let fits = bytes <= left;
        left -= bytes.min(left);
        fits
    };
    all.into_iter()
        .take(SECTIONS_MAX)
        .take_while(fits)
        .collect()
}

/// As JSON.
fn length(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// Flows seen at two places, the first few.
fn pairs(analysis: &Analysis) -> Vec<Between<'_>> {
    let pairs = analysis.both_ends.iter().take(PAIRS_MAX);
    pairs
        .filter_map(|pair| Between::of(analysis, pair))
        .collect()
}

fn title(analysis: &Analysis) -> String {
    let names: Vec<&str> = analysis
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    match names.as_slice() {
        [] => "capture".to_owned(),
        [one] => (*one).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

fn heading(analysis: &Analysis, largest: Option<&Shown<'_>>) -> Markup {
    let packets: u64 = analysis.files.iter().map(|file| file.packets).sum();
    markup! {
        p.kicker { "longhaul tap · " (title(analysis)) }
        h1 { (quantity::of(packets, "packet")) " of " (flows::title(analysis)) }
        @if let Some(shown) = largest { (answer(*shown)) }
        (reservations(analysis))
    }
}

/// The largest direction's rate, and what limited it most.
fn answer(shown: Shown<'_>) -> Markup {
    let Amount { rate, lasted, .. } = shown.amount();
    let by = mostly(shown.direction());
    markup! {
        p.answer {
            strong { (rate) } " for " (lasted)
            @if let Some((by, share)) = by { ", limited by the " (by) @if share < 0.95 { " most of the time" } }
        }
        p { "The largest: " (shown.name()) "." }
    }
}

/// What makes the figures less than certain.
fn reservations(analysis: &Analysis) -> Markup {
    let dropped: u64 = analysis
        .files
        .iter()
        .filter_map(|file| file.kernel_drops)
        .sum();
    let unsound = analysis
        .files
        .iter()
        .filter(|file| !file.damages.is_empty())
        .count() as u64;
    markup! {
        @if dropped > 0 {
            p.fail { (quantity::of(dropped, "packet")) " got lost while capturing: counts are too low." }
        }
        @if unsound > 0 {
            p.fail { a href="#method" { (quantity::of(unsound, "file")) } " not sound throughout." }
        }
    }
}

/// What is shown of several directions; without scripts all are.
fn picker(shown: &[Shown<'_>], between: &[Between<'_>]) -> Markup {
    markup! {
        div.picker {
            @if shown.len() + between.len() > 1 {
                label { "Direction " select id="pick" {
                    @for one in shown {
                        option value=(one.id()) { (one.name()) " · " (one.amount().payload) }
                    }
                    @for pair in between { option value=(pair.id()) { (pair.name()) } }
                } }
            }
            (figure::help("All charts share one time axis. "))
            noscript { p { "The charts over time need JavaScript; series files have the same figures." } }
        }
    }
}

fn scripts(shown: &[Shown<'_>], between: &[Between<'_>]) -> Markup {
    let delays: Vec<Drawn> = between.iter().flat_map(Between::courses).collect();
    of_courses(shown.iter().map(|one| one.course).chain(&delays))
}

/// What the charts are made of, numbered as their places have it, and the scripts: the time diagram of segments and
/// what is around it.
pub(crate) fn of_courses<'a>(courses: impl Iterator<Item = &'a Drawn>) -> Markup {
    markup! {
        @for (n, course) in courses.enumerate() { (page::data(&format!("course-{n}"), course)) }
        (page::data("charts", &[(); 0]))
        (page::scripts())
        script { (PreEscaped([page::SEGMENTS, SCRIPT].concat())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{made_up, result::Damage};
    use longhaul_testbed::browser::{assert_loads_nothing, outline};

    #[test]
    fn the_verdict_comes_first_then_charts_flows_method_raw_data() {
        let page = html(&made_up::finished());
        insta::assert_snapshot!(outline(&page));
        assert_loads_nothing(&page);
    }

    #[test]
    fn texts_of_the_capture_stay_texts() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let mut finished = made_up::finished();
        let analysis = &mut finished.analysis;
        analysis.files[0].name = EVIL.to_owned();
        analysis.files[0].format = EVIL.to_owned();
        analysis.files[0].left_out = [(EVIL.to_owned(), 1)].into();
        analysis.files[0].damages = vec![Damage {
            at_byte: 1,
            what: EVIL.to_owned(),
        }];
        analysis.vantages[0].name = EVIL.to_owned();
        analysis.raw = vec![EVIL.to_owned()];
        analysis.flows[0].upload.verdict = EVIL.to_owned();
        finished.courses[0]
            .columns
            .insert(EVIL.to_owned(), vec![Some(1)]);
        let page = html(&finished);
        assert!(!page.contains(EVIL));
        assert_eq!(
            page.matches("<script").count(),
            8,
            "two courses, two of delays, no other charts, and three scripts"
        );
        assert_eq!(page.matches("</script").count(), 8);
    }

    #[test]
    fn a_capture_without_a_flow_is_a_page_too() {
        let page = html(&Finished::default());
        assert!(page.contains("There is no TCP connection in it."), "{page}");
        assert!(!page.contains("<section class=\"direction\""));
    }

    const PAGE_BYTES: usize = 5 << 20;

    /// A thousand flows, each with a course as long as courses may be and full of large numbers.
    #[test]
    fn the_page_stays_small() {
        let mut finished = made_up::finished();
        let long = finished.analysis.flows[0].clone();
        finished.analysis.flows = (0..1000)
            .map(|number| longhaul_flow::record::Flow {
                number,
                ..long.clone()
            })
            .collect();
        let mut course = finished.courses[0].clone();
        for column in course.columns.values_mut() {
            *column = vec![Some(i64::MAX); 64];
        }
        course.bins = 64;
        finished.courses = (0..1000)
            .map(|flow| Drawn {
                flow,
                ..course.clone()
            })
            .collect();
        let bytes = html(&finished).len();
        assert!(bytes < PAGE_BYTES, "{bytes}");
        assert!(bytes > 500_000, "it holds what it may: {bytes}");
        for column in course.columns.values_mut() {
            *column = vec![Some(i64::MAX); 4096];
        }
        finished.courses = (0..1000)
            .map(|flow| Drawn {
                flow,
                ..course.clone()
            })
            .collect();
        let bytes = html(&finished).len();
        assert!((2_000_000..PAGE_BYTES).contains(&bytes), "{bytes}");
    }
}
