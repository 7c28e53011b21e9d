// SPDX-License-Identifier: MIT OR Apache-2.0
//! Top of the page: the answer as one sentence with one number, and the paper's number beside it.

use crate::result::{Answer, LabResult};
use longhaul_report::metric::{Metric, format_factor};
use maud::{Markup, html};

pub(super) fn section(result: &LabResult) -> Markup {
    html! {
        p.kicker {
            (result.scenario)
            @if result.quick { " " span.badge { "quick run" } }
            @if result.simulated().is_some() { " " span.badge { "simulated" } }
        }
        h1 { (result.title()) }
        @if let Some(answer) = &result.answer { (answer_markup(result, answer)) }
        @if let Some(about) = &result.about {
            @if let Some(question) = &about.question { p.question { (question) } }
        }
        @if let Some(cells) = result.simulated() {
            p.note { "Simulated, not run on sockets: " (cells) ". Links are those of the emulator, TCP is a model of Linux’s." }
        }
        p { (check_summary(result)) }
        (overload_note(result))
        @if result.quick {
            p.note { "The runs were shortened by " code { "--quick" } ": the figures are a first look." }
        }
    }
}

fn answer_markup(result: &LabResult, answer: &Answer) -> Markup {
    let Some(number) = number(result, answer) else {
        return html! { p.answer { "No run gave the figure that answers this." } };
    };
    let (before, after) = answer
        .sentence
        .split_once("{}")
        .unwrap_or((&answer.sentence, ""));
    html! {
        p.answer { (before) strong { (number.ours) } (after) }
        p.beside {
            (number.ours_detail)
            @if let Some(paper) = number.paper { ". " span.paper { "The paper: " (paper) } "." }
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
                summary { @match runs.len() { 1 => "1 run was", n => { (n) " runs were" } } " disturbed: the figures say less about the scenario than about the machine" }
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
            a.verdict href="#checks" { "? " (undecided) " of " (all) " checks not decided: the machine was too busy" }
        }
    }
}

/// Number of the answer as text, ours and the paper's.
#[derive(Debug, PartialEq)]
pub(crate) struct AnswerNumber {
    /// Ratio to the baseline: "5.9×", or a value without a baseline.
    pub(crate) ours: String,
    /// Explanation of the ratio: "from 91.2 s (direct) to 15.4 s (two relays)".
    pub(crate) ours_detail: String,
    /// Number of the paper: "5.69×, from 91 s to 16 s". Absent if the paper has no figure or it looks misprinted.
    pub(crate) paper: Option<String>,
    /// Factor by which ours is better than the paper's.
    pub(crate) ratio: Option<f64>,
}

/// Computes the number that answers the scenario's question; `None` if a cell lacks it.
pub(crate) fn number(result: &LabResult, answer: &Answer) -> Option<AnswerNumber> {
    let metric = Metric::of(&answer.metric);
    let cell = result.cells.get(answer.cell)?;
    let ours = cell.metrics.get(&answer.metric)?.median;
    let paper = cell.paper_figure(&answer.metric);
    let Some(baseline) = answer.baseline else {
        return Some(AnswerNumber {
            ours: metric.format(ours),
            ours_detail: format!("{}, {}", metric.label, cell.name()),
            paper: paper.map(|paper| metric.format(paper)),
            ratio: paper.and_then(|paper| metric.factor(ours, paper)),
        });
    };
    let baseline = result.cells.get(baseline)?;
    let before = baseline.metrics.get(&answer.metric)?.median;
    let factor = metric.factor(ours, before)?;
    let papers = baseline.paper_figure(&answer.metric).zip(paper);
    Some(AnswerNumber {
        ours: format_factor(factor),
        ratio: papers.and_then(|(before, after)| Some(factor / metric.factor(after, before)?)),
        ours_detail: format!(
            "From {} ({}) to {} ({})",
            metric.format(before),
            baseline.name(),
            metric.format(ours),
            cell.name()
        ),
        paper: papers.and_then(|(before, after)| {
            let factor = format_factor(metric.factor(after, before)?);
            Some(format!(
                "{factor}, from {} to {}",
                metric.format(before),
                metric.format(after)
            ))
        }),
    })
}
