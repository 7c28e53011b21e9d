// SPDX-License-Identifier: MIT OR Apache-2.0
//! Top of the page: the headline with its value, and the reference value beside it.

use crate::result::{Headline, LabResult};
use longhaul_report::{
    count::counted,
    metric::{Metric, format_factor},
};
use maud::{Markup, html};

pub(super) fn section(result: &LabResult) -> Markup {
    html! {
        p.kicker {
            (result.scenario)
            @if result.quick { " " span.badge { "quick run" } }
            @if result.simulated().is_some() { " " span.badge { "simulated" } }
        }
        h1 { (result.title()) }
        @if let Some(headline) = &result.headline { (headline_markup(result, headline)) }
        @if let Some(about) = &result.about {
            @if let Some(question) = &about.question { p.question { (question) } }
        }
        @if let Some(cells) = result.simulated() {
            p.note { "Simulated, not run on sockets: " (cells) ". Links behave as in the emulator, TCP is a model of Linux’s." }
        }
        p { (check_summary(result)) }
        (overload_note(result))
        @if result.quick {
            p.note { "The runs were shortened by " code { "--quick" } ": the values are preliminary." }
        }
    }
}

fn headline_markup(result: &LabResult, headline: &Headline) -> Markup {
    let Some(value) = value(result, headline) else {
        let label = Metric::of(&headline.metric).label;
        return html! { p.answer { "No value: no run measured “" (label) "”." } };
    };
    let (before, after) = headline
        .template
        .split_once("{}")
        .unwrap_or((&headline.template, ""));
    html! {
        p.answer { (before) strong { (value.text) } (after) }
        p.detail {
            (value.detail)
            @if let Some(reference) = value.reference { ". " span.reference { "Reference: " (reference) } "." }
        }
    }
}

/// Returns a note about the runs during which the host was overloaded.
fn overload_note(result: &LabResult) -> Markup {
    let runs: Vec<String> = result
        .overloaded_runs()
        .map(|(cell, why)| format!("{}: {why}", cell.name()))
        .collect();
    html! {
        @if !runs.is_empty() {
            details.note {
                summary { "The emulator was late in " (counted(runs.len() as u64, "run")) ", so the values are less reliable" }
                ul { @for run in &runs { li { (run) } } }
            }
        }
    }
}

/// Returns the numbers of passed and failed checks, as a link to the checks.
fn check_summary(result: &LabResult) -> Markup {
    let (passed, failed, all) = (
        result.checks.iter().filter(|c| c.pass).count(),
        result.checks.iter().filter(|c| c.failed()).count(),
        result.checks.len(),
    );
    let undecided = all - passed - failed;
    html! {
        @if all == 0 {}
        @else if (passed, all) == (1, 1) { a.verdict.pass href="#checks" { "✓ the check passed" } }
        @else if passed == all { a.verdict.pass href="#checks" { "✓ all " (all) " checks passed" } }
        @else if failed > 0 { a.verdict.fail href="#checks" { "✗ " (failed) " of " (all) " checks failed" } }
        @if undecided > 0 {
            a.verdict href="#checks" { "? " (undecided) " of " (all) " checks undecided: the emulator was late" }
        }
    }
}

/// Value that fills the gap in the headline, with the reference value.
#[derive(Debug, PartialEq)]
pub(crate) struct HeadlineValue {
    /// Ratio to the baseline: "5.9×", or a value without a baseline.
    pub(crate) text: String,
    /// Explanation of the ratio: "from 91.2 s (direct) to 15.4 s (two relays)".
    pub(crate) detail: String,
    /// Reference value: "5.69×, from 91 s to 16 s". Absent if it is missing or excluded.
    pub(crate) reference: Option<String>,
    /// Factor by which the value is better than the reference.
    pub(crate) ratio: Option<f64>,
}

/// Computes the value in the headline; `None` if a cell lacks it.
pub(crate) fn value(result: &LabResult, headline: &Headline) -> Option<HeadlineValue> {
    let metric = Metric::of(&headline.metric);
    let cell = result.cells.get(headline.cell)?;
    let measured = cell.metrics.get(&headline.metric)?.median;
    let reference = cell.reference_value(&headline.metric);
    let Some(baseline) = headline.baseline else {
        return Some(HeadlineValue {
            text: metric.format(measured),
            detail: format!("{}, {}", metric.label, cell.name()),
            reference: reference.map(|reference| metric.format(reference)),
            ratio: reference.and_then(|reference| metric.factor(measured, reference)),
        });
    };
    let baseline = result.cells.get(baseline)?;
    let before = baseline.metrics.get(&headline.metric)?.median;
    let factor = metric.factor(measured, before)?;
    let references = baseline.reference_value(&headline.metric).zip(reference);
    Some(HeadlineValue {
        text: format_factor(factor),
        ratio: references.and_then(|(before, after)| Some(factor / metric.factor(after, before)?)),
        detail: format!(
            "From {} ({}) to {} ({})",
            metric.format(before),
            baseline.name(),
            metric.format(measured),
            cell.name()
        ),
        reference: references.and_then(|(before, after)| {
            let factor = format_factor(metric.factor(after, before)?);
            Some(format!(
                "{factor}, from {} to {}",
                metric.format(before),
                metric.format(after)
            ))
        }),
    })
}
