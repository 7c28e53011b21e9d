// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.html`: the verdict, the charts of the selected direction, the table of all flows, and the method of
//! measurement. maud escapes every text that comes from a capture.
//!
//! The page stays below 5 MiB for a capture of any length. Every part of it has a limit: the bins of a time series
//! (`output`), the directions ([`SECTIONS_MAX`]), the chart data ([`CHART_SERIES_BYTES_MAX`]), the packet windows and
//! the rows of the flow table.

use super::{
    direction::{self, DirectionView},
    flows, method,
    timeline::dominant_limit,
    two_point::{self, TwoPointSection},
    udp_flows,
    units::{self, TransferSummary},
};
use crate::report::result::{Analysis, analysis_report::AnalysisReport, chart_series::ChartSeries};
use longhaul_report::{
    chart::{self, Charts},
    page::{self, Page},
};
use maud::{Markup, PreEscaped, html as markup};

/// Maximum size of the chart data, bytes.
const CHART_SERIES_BYTES_MAX: usize = 3 << 20;
/// Maximum number of directions with charts.
const SECTIONS_MAX: usize = 32;
/// Maximum number of sections about flows at two capture points: 40 kB each.
const TWO_POINT_SECTIONS_MAX: usize = 8;

pub(crate) const STYLE: &str = include_str!("../../../web/tap.css");
const SCRIPT: &str = include_str!("../../../web/tap.js");

/// Returns the whole page.
pub(crate) fn html(report: &AnalysisReport) -> String {
    let analysis = &report.analysis;
    let views = charted_directions(report);
    let pairs = two_point_sections(analysis);
    let mut charts = Charts::default();
    let main = figures(analysis, &views, &pairs, &mut charts);
    Page {
        title: &title(analysis),
        longhaul: &analysis.longhaul,
        more_style: STYLE,
        header: heading(analysis, views.first()),
        main,
        footer: method::other_files(analysis),
        scripts: scripts(&views, &pairs, &charts),
    }
    .html()
}

fn figures(
    analysis: &Analysis,
    views: &[DirectionView<'_>],
    pairs: &[TwoPointSection<'_>],
    charts: &mut Charts,
) -> Markup {
    let ids: Vec<String> = views.iter().map(DirectionView::id).collect();
    markup! {
        @if !views.is_empty() {
            (direction_picker(views, pairs))
            @for (number, view) in views.iter().enumerate() { (direction::section(*view, number, charts)) }
        }
        @for (n, pair) in pairs.iter().enumerate() {
            (two_point::section(pair, views.len() + 2 * n, charts))
        }
        (flows::section(analysis, |id| ids.iter().any(|known| known == id)))
        (udp_flows::section(analysis))
        (method::section(analysis))
    }
}

/// Returns the directions that get charts, most payload first, as many as the size limit allows.
fn charted_directions(report: &AnalysisReport) -> Vec<DirectionView<'_>> {
    let of = |series| DirectionView::find(&report.analysis, series);
    let mut all: Vec<DirectionView<'_>> = report.chart_series.iter().filter_map(of).collect();
    all.sort_by_key(|views| std::cmp::Reverse(views.direction().data.unique_bytes));
    let mut left = CHART_SERIES_BYTES_MAX;
    let is_within = |views: &DirectionView<'_>| {
        let bytes = json_len(views.series).saturating_sub(json_len(&views.series.packet_windows));
        let is_within = bytes <= left;
        left -= bytes.min(left);
        is_within
    };
    all.into_iter()
        .take(SECTIONS_MAX)
        .take_while(is_within)
        .collect()
}

/// Returns the length of the value as JSON, bytes.
fn json_len(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// Returns the first flows that were captured at two points.
fn two_point_sections(analysis: &Analysis) -> Vec<TwoPointSection<'_>> {
    let pairs = analysis
        .two_point_comparisons
        .iter()
        .take(TWO_POINT_SECTIONS_MAX);
    pairs
        .filter_map(|pair| TwoPointSection::new(analysis, pair))
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
        [view] => (*view).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

fn heading(analysis: &Analysis, largest: Option<&DirectionView<'_>>) -> Markup {
    let packets: u64 = analysis.files.iter().map(|file| file.packets).sum();
    markup! {
        p.kicker { "longhaul tap · " (title(analysis)) }
        h1 { (units::counted(packets, "packet")) " of " (flow_counts(analysis)) }
        @if let Some(views) = largest { (headline(*views)) }
        (warnings(analysis))
    }
}

/// Returns the numbers of flows as text: "5 flows and 2 UDP flows".
fn flow_counts(analysis: &Analysis) -> String {
    let tcp = flows::title(analysis);
    match analysis.udp_flow_counts() {
        (0, _) => tcp,
        (udp, _) => format!("{tcp} and {}", udp_flows::title(udp)),
    }
}

/// Returns the headline: the largest direction's rate, and its most frequent limit.
fn headline(views: DirectionView<'_>) -> Markup {
    let TransferSummary {
        rate,
        duration: lasted,
        ..
    } = views.summary();
    let by = dominant_limit(views.direction());
    markup! {
        p.answer {
            strong { (rate) } " for " (lasted)
            @if let Some((by, share)) = by { ", limited by the " (by) @if share < 0.95 { " most of the time" } }
        }
        p { "Largest flow: " (views.name()) "." }
    }
}

/// Returns warnings about lost packets and damaged files.
fn warnings(analysis: &Analysis) -> Markup {
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
            p.fail { (units::counted(dropped, "packet")) " dropped by the kernel during the capture: counts are too low." }
        }
        @if unsound > 0 {
            p.fail { a href="#method" { (units::counted(unsound, "file")) } " partly damaged." }
        }
    }
}

/// Returns the selection of the direction to show; without scripts the page shows all.
fn direction_picker(views: &[DirectionView<'_>], pairs: &[TwoPointSection<'_>]) -> Markup {
    markup! {
        div.picker {
            @if views.len() + pairs.len() > 1 {
                label { "Direction " select id="pick" {
                    @for view in views {
                        option value=(view.id()) { (view.name()) " · " (view.summary().payload) }
                    }
                    @for pair in pairs { option value=(pair.id()) { (pair.name()) } }
                } }
            }
            (chart::help("All charts over time share one axis. ", "series files have the same figures"))
        }
    }
}

fn scripts(views: &[DirectionView<'_>], pairs: &[TwoPointSection<'_>], charts: &Charts) -> Markup {
    let delays: Vec<ChartSeries> = pairs
        .iter()
        .flat_map(TwoPointSection::chart_series)
        .collect();
    chart_scripts(views.iter().map(|view| view.series).chain(&delays), charts)
}

/// Returns the chart data, numbered as in the charts' elements, and the scripts that draw all charts.
pub(crate) fn chart_scripts<'a>(
    all_series: impl Iterator<Item = &'a ChartSeries>,
    charts: &Charts,
) -> Markup {
    markup! {
        @for (n, series) in all_series.enumerate() { (page::data_block(&format!("series-{n}"), series)) }
        (page::data_block("charts", charts))
        (page::scripts())
        script { (PreEscaped([page::SEGMENTS_SCRIPT, SCRIPT].concat())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixtures, result::Damage};
    use longhaul_testprograms::browser::{assert_loads_nothing, outline};

    #[test]
    fn orders_sections_from_verdict_to_raw_data() {
        let page = html(&fixtures::report());
        insta::assert_snapshot!(outline(&page));
        assert_loads_nothing(&page);
    }

    #[test]
    fn escapes_texts_of_the_capture() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let mut report = fixtures::report();
        let analysis = &mut report.analysis;
        analysis.files[0].name = EVIL.to_owned();
        analysis.files[0].format = EVIL.to_owned();
        analysis.files[0].skipped = [(EVIL.to_owned(), 1)].into();
        analysis.files[0].damages = vec![Damage {
            at_byte: 1,
            description: EVIL.to_owned(),
        }];
        analysis.capture_points[0].name = EVIL.to_owned();
        analysis.other_files = vec![EVIL.to_owned()];
        analysis.flows[0].upload.verdict = EVIL.to_owned();
        report.chart_series[0]
            .columns
            .insert(EVIL.to_owned(), vec![Some(1)]);
        let page = html(&report);
        assert!(!page.contains(EVIL));
        assert_eq!(
            page.matches("<script").count(),
            8,
            "two time series, two of delays, the histograms, and three scripts"
        );
        assert_eq!(page.matches("</script").count(), 8);
    }

    #[test]
    fn renders_capture_without_flows() {
        let page = html(&AnalysisReport::default());
        assert!(
            page.contains("The capture has no TCP connection."),
            "{page}"
        );
        assert!(!page.contains("<section class=\"direction\""));
    }

    const PAGE_BYTES: usize = 5 << 20;

    /// A thousand flows, each with time series of maximum length and with large numbers.
    #[test]
    fn stays_below_the_maximum_size() {
        let mut report = fixtures::report();
        let long = report.analysis.flows[0].clone();
        report.analysis.flows = (0..1000)
            .map(|number| longhaul_flow::record::Flow {
                number,
                ..long.clone()
            })
            .collect();
        let mut series = report.chart_series[0].clone();
        for column in series.columns.values_mut() {
            *column = vec![Some(i64::MAX); 64];
        }
        series.bins = 64;
        report.chart_series = (0..1000)
            .map(|flow| ChartSeries {
                flow,
                ..series.clone()
            })
            .collect();
        let bytes = html(&report).len();
        assert!(bytes < PAGE_BYTES, "{bytes}");
        assert!(bytes > 500_000, "it holds what it may: {bytes}");
        for column in series.columns.values_mut() {
            *column = vec![Some(i64::MAX); 4096];
        }
        report.chart_series = (0..1000)
            .map(|flow| ChartSeries {
                flow,
                ..series.clone()
            })
            .collect();
        let bytes = html(&report).len();
        assert!((2_000_000..PAGE_BYTES).contains(&bytes), "{bytes}");
    }
}
