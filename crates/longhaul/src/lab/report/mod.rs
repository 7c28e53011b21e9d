// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a result: one HTML file that needs no network.
//!
//! The answer comes first, then the picture that proves it, the table, how it was measured, and
//! the raw data. maud escapes every text that comes from the scenario.

mod ack_course;
pub(crate) mod answer;
mod bars;
mod grid;
mod legs;
mod method;
mod over_time;
mod script;
mod testbed;
mod values;

use super::result::LabResult;
use crate::{exit::Refusal, page};
use anyhow::Context;
use maud::{DOCTYPE, Markup, html as markup};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes `dir/report.html` anew from `dir/result.json` and returns its path.
///
/// # Errors
/// A usage refusal if `dir` holds no readable result; a failure if the page cannot be written.
pub(crate) fn rebuild(dir: &Path) -> anyhow::Result<PathBuf> {
    let source = dir.join("result.json");
    let unreadable = |why: String| {
        let way_out = "give a directory that 'longhaul lab run --out' wrote";
        Refusal::usage(format!("{}: {why}; {way_out}", source.display()))
    };
    let text = fs::read_to_string(&source).map_err(|error| unreadable(error.to_string()))?;
    let result = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    let page = dir.join("report.html");
    fs::write(&page, html(&result)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

/// The whole page of `result`.
pub(crate) fn html(result: &LabResult) -> String {
    let charts = charts(result);
    markup! {
        (DOCTYPE)
        html lang="en" {
            (head(result))
            body {
                (body(result, &charts))
                @if !charts.is_empty() { (scripts(&charts)) }
            }
        }
    }
    .into_string()
}

fn charts(result: &LabResult) -> Vec<script::Chart> {
    [
        over_time::charts(result),
        legs::charts(result),
        ack_course::charts(result),
    ]
    .concat()
}

/// What the page shows, without styles and scripts.
fn body(result: &LabResult, charts: &[script::Chart]) -> Markup {
    markup! {
        header { (answer::section(result)) }
        main {
            @match grid::Plan::of(&result.cells) {
                Some(plan) => { (grid::section(result, &plan)) }
                None => { (bars::section(result)) }
            }
            @if !charts.is_empty() { (script::section(charts)) }
            (values::section(result))
            @if let Some(testbed) = &result.testbed { (testbed::section(testbed, &result.cells)) }
            (method::section(result))
        }
        footer { (method::raw(result)) }
    }
}

fn head(result: &LabResult) -> Markup {
    page::head(result.title(), &result.longhaul, "")
}

fn scripts(charts: &[script::Chart]) -> Markup {
    markup! {
        (page::data("charts", &charts))
        (page::scripts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::result::About;
    use serde_json::json;

    /// A result whose figures are made up.
    fn fixture() -> LabResult {
        serde_json::from_str(include_str!("../../../tests/fixtures/made-up-result.json")).unwrap()
    }

    /// Each heading, caption and summary of the page on a line: its structure.
    fn outline(page: &str) -> String {
        let openings = page.split('<').skip(1);
        let kept = [
            "title>",
            "h1",
            "h2",
            "h3",
            "p class=\"answer",
            "strong",
            "caption",
            "summary",
        ];
        let lines = openings.filter(|part| kept.iter().any(|tag| part.starts_with(tag)));
        lines
            .map(|part| part.replacen('>', ": ", 1) + "\n")
            .collect()
    }

    #[test]
    fn the_answer_comes_first_then_picture_table_method_raw_data() {
        let mut result = fixture();
        result.checks.truncate(1);
        let page = body(&result, &charts(&result)).into_string();
        insta::assert_snapshot!(outline(&page));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = html(&fixture());
        for loads in ["src=", "<link", "@import", "url("] {
            assert!(!page.contains(loads), "{loads}");
        }
    }

    #[test]
    fn texts_of_the_scenario_stay_texts() {
        const EVIL: &str = "</script><script>alert(1)</script>\"'";
        let mut result = fixture();
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
        result.cells[0].label = Some(EVIL.to_owned());
        for leg in &mut result.cells[1].runs[0].series.as_mut().unwrap().legs {
            leg.name = EVIL.to_owned();
        }
        let page = html(&result);
        assert!(!page.contains(EVIL));
        assert_eq!(
            page.matches("<script").count(),
            3,
            "the data, uPlot and chart.js"
        );
        assert_eq!(page.matches("</script").count(), 3);
    }

    #[test]
    fn a_result_without_its_optional_parts_is_a_page_too() {
        let bare = LabResult {
            scenario: "bare".to_owned(),
            ..LabResult::default()
        };
        let page = html(&bare);
        assert!(page.contains("<h1>bare</h1>"));
        assert!(!page.contains("id=\"charts\""));
    }

    #[test]
    fn a_directory_without_a_result_is_refused_as_usage() {
        let error = rebuild(Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))));
        assert!(
            error.to_string().starts_with("/nonexistent/result.json: "),
            "{error}"
        );
    }
}
