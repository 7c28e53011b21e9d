// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a result: one HTML file that needs no network.
//!
//! The answer comes first, then the picture that proves it, the table, how it was measured, and
//! the raw data. maud escapes every text that comes from the scenario.

pub(super) mod answer;
mod bars;
mod grid;
mod legs;
mod method;
mod over_time;
mod script;
mod testbed;
mod values;

use super::result::LabResult;
use crate::exit::Refusal;
use anyhow::Context;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};
use std::{
    fs,
    path::{Path, PathBuf},
};

const STYLE: &str = include_str!("../../../web/longhaul.css");
const CHART: &str = include_str!("../../../web/chart.js");
const UPLOT: &str = include_str!("../../../web/vendor/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../../web/vendor/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../../web/vendor/uPlot.LICENSE");

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
    let charts: Vec<script::Chart> = [over_time::charts(result), legs::charts(result)].concat();
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
    markup! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="generator" content={ "longhaul " (result.longhaul) };
            title { (result.title()) " – longhaul" }
            style { (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) }
        }
    }
}

fn scripts(charts: &[script::Chart]) -> Markup {
    markup! {
        (script::data(charts))
        script { (PreEscaped(format!("/*! {UPLOT_LICENCE} */\n{UPLOT}"))) }
        script { (PreEscaped(CHART)) }
    }
}
