// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page of a result: one HTML file that needs no network.

use super::{
    csv,
    downloads::Downloads,
    figure::{self, default_figures, time_series},
    headline, method,
    over_time::{captured_rates, goodput, legs},
    tables, topology, values,
};
use crate::result::LabResult;
use anyhow::Context;
use longhaul_report::{
    chart::{self, Chart, Charts},
    page::{self, Page},
};
use maud::{Markup, html as markup};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes `dir/report.html`, `dir/cells.csv` and `dir/runs.csv` from `dir/result.json`; returns the path of the page.
///
/// # Errors
/// `dir` has no readable result: a usage refusal. A file cannot be written: a failure.
pub fn rebuild(dir: &Path) -> anyhow::Result<PathBuf> {
    Ok(rebuild_result(dir)?.1)
}

pub(super) fn rebuild_result(dir: &Path) -> anyhow::Result<(LabResult, PathBuf)> {
    let result = LabResult::read(&dir.join("result.json"))?;
    let page = dir.join("report.html");
    let downloads = Downloads::select(&result, dir);
    fs::write(&page, html(&result, &downloads))
        .with_context(|| format!("cannot write {}", page.display()))?;
    csv::write(&result, dir)
        .with_context(|| format!("cannot write tables to {}", dir.display()))?;
    Ok((result, page))
}

/// Returns the whole page of `result`.
pub(super) fn html(result: &LabResult, downloads: &Downloads) -> String {
    let mut charts = Charts::default();
    let main = figures(result, &mut charts);
    Page {
        title: result.title(),
        longhaul: &result.longhaul,
        header: headline::section(result),
        main,
        footer: downloads.section(result),
        scripts: scripts(&charts),
        ..Page::default()
    }
    .html()
}

fn figures(result: &LabResult, charts: &mut Charts) -> Markup {
    markup! {
        (figure_sections(result, charts))
        (tables::section(result))
        (values::section(result))
        @if let Some(testbed) = &result.testbed { (topology::section(testbed, &result.cells)) }
        (method::section(result))
    }
}

/// Returns the figures that the scenario selects. If it selects none, returns default figures for its cells, and
/// charts over time.
fn figure_sections(result: &LabResult, charts: &mut Charts) -> Markup {
    let selected = !result.figures.is_empty();
    let figures_to_draw = if selected {
        result.figures.clone()
    } else {
        default_figures::figures(result)
    };
    let figures: Vec<Markup> = figures_to_draw
        .iter()
        .map(|figure| figure::render(result, figure, charts))
        .collect();
    let has_charts = !charts.is_empty();
    let help = || chart::help("", "the tables and result.json have the same data");
    let over_time = if selected {
        captured_rates::charts(result)
    } else {
        over_time(result)
    };
    let over_time: Vec<Markup> = over_time
        .into_iter()
        .map(|chart| charts.add(chart))
        .collect();
    markup! {
        @if !figures.is_empty() {
            section.figures {
                h2 { "Figures" }
                @if has_charts { (help()) }
                @for figure in &figures { (figure) }
            }
        }
        @if !over_time.is_empty() {
            section.charts {
                h2 { "Time series" }
                @if !has_charts { (help()) }
                @for chart in &over_time { (chart) }
            }
        }
    }
}

fn over_time(result: &LabResult) -> Vec<Chart> {
    [
        goodput::charts(result),
        time_series::of_flows(result, &goodput::cells_to_draw(result)),
        legs::charts(result),
        captured_rates::charts(result),
    ]
    .concat()
}

fn scripts(charts: &Charts) -> Markup {
    markup! {
        @if !charts.is_empty() { (page::data_block("charts", charts)) (page::scripts()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::fixtures::download, result::About};
    use longhaul_command::exit::Refusal;
    use longhaul_testprograms::browser::{assert_loads_nothing, outline};
    use serde_json::json;

    #[test]
    fn orders_sections_from_headline_to_raw_data() {
        let mut result = download();
        result.checks.truncate(1);
        let page = html(&result, &Downloads::default());
        insta::assert_snapshot!(outline(&page));
        assert_loads_nothing(&page);
    }

    #[test]
    fn escapes_texts_of_the_scenario() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let mut result = download();
        let about = About {
            title: EVIL.to_owned(),
            notes: vec![EVIL.to_owned()],
            ..About::default()
        };
        result.scenario = EVIL.to_owned();
        result.about = Some(about);
        result.resolved = json!({ EVIL: EVIL });
        result.host.sysctl.insert(EVIL.to_owned(), EVIL.to_owned());
        result.checks[0].name = EVIL.to_owned();
        result.raw = vec![EVIL.to_owned()];
        let downloads = Downloads::select(&result, Path::new("/nonexistent"));
        result.cells[0].label = Some(EVIL.to_owned());
        for segment in &mut result.cells[1].runs[0].series.as_mut().unwrap().legs {
            segment.name = EVIL.to_owned();
        }
        let page = html(&result, &downloads);
        assert!(!page.contains(EVIL));
        assert_eq!(
            page.matches("<script").count(),
            3,
            "the data, uPlot and chart.js"
        );
        assert_eq!(page.matches("</script").count(), 3);
    }

    #[test]
    fn renders_result_without_optional_parts() {
        let bare = LabResult {
            scenario: "bare".to_owned(),
            ..LabResult::default()
        };
        let page = html(&bare, &Downloads::default());
        assert!(page.contains("<h1>bare</h1>"));
        assert!(!page.contains("id=\"charts\""));
    }

    #[test]
    fn refuses_directory_without_result() {
        let error = rebuild(Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))));
        assert!(
            error.to_string().starts_with("/nonexistent/result.json: "),
            "{error}"
        );
    }
}
