// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one result says in a line: ours, the paper's, their ratio, and whether its checks hold.

use super::{
    answer,
    figure::{chosen, heat},
};
use crate::{result::LabResult, summary::Summary};
use longhaul_report::metric::Metric;

/// Heading of what no paper asked.
pub(crate) const BEYOND: &str = "Beyond the papers";

/// One result in a line.
#[derive(Debug, Clone, Default)]
pub struct Experiment {
    /// Address of its page.
    pub(crate) link: String,
    /// The scenario's name.
    pub scenario: String,
    pub(crate) title: String,
    pub(crate) question: String,
    /// Where the paper's figures come from.
    pub(crate) source: Option<String>,
    /// The main figure, as text.
    pub ours: String,
    pub(crate) paper: Option<String>,
    /// By what factor ours is better than the paper's; of several cells the median.
    pub ratio: Option<Ratio>,
    /// Those that passed, of all.
    pub checks: [usize; 2],
    /// Those that were not decided.
    pub undecided: usize,
    /// Runs that counted, and all runs.
    pub runs: [usize; 2],
    pub(crate) began: jiff::Timestamp,
    /// Time that it took, in seconds.
    pub took_s: Option<f64>,
    pub(crate) quick: bool,
    /// Which cells were simulated.
    pub(crate) simulated: Option<String>,
}

/// Ours over the paper's, turned so that more is better.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// What the page tells, and the range over the cells.
    pub of: Summary,
    /// So many cells.
    pub(crate) cells: usize,
}

impl Experiment {
    /// The row of this result; `link` leads to its page.
    pub fn of(result: &LabResult, link: String) -> Self {
        let number = result
            .answer
            .as_ref()
            .and_then(|answer| answer::number(result, answer));
        let about = result.about.clone().unwrap_or_default();
        let runs = || result.cells.iter().flat_map(|cell| &cell.runs);
        let ratio = number
            .as_ref()
            .and_then(|number| number.ratio)
            .map(|ratio| Ratio::of(&[ratio]));
        Self {
            link,
            scenario: result.scenario.clone(),
            title: result.title().to_owned(),
            question: about.question.unwrap_or_default(),
            source: about.paper,
            ours: ours(result, number.as_ref()),
            paper: number
                .and_then(|number| number.paper)
                .or_else(|| papers(result)),
            ratio: ratio.flatten().or_else(|| Ratio::of(&ratios(result))),
            checks: [
                result.checks.iter().filter(|check| check.pass).count(),
                result.checks.len(),
            ],
            undecided: result
                .checks
                .iter()
                .filter(|check| check.undecided.is_some())
                .count(),
            runs: [
                runs().filter(|run| run.failed.is_none()).count(),
                runs().count(),
            ],
            began: result.started,
            took_s: result.took_s,
            quick: result.quick,
            simulated: result.simulated(),
        }
    }

    /// Every check holds, and every run gave a figure.
    pub fn passed(&self) -> bool {
        self.checks[0] == self.checks[1] && self.runs[0] == self.runs[1]
    }

    /// A run failed, or a check was decided and does not hold.
    pub fn failed(&self) -> bool {
        self.checks[0] + self.undecided < self.checks[1] || self.runs[0] < self.runs[1]
    }

    /// Whether there is a paper to compare with.
    pub fn has_paper(&self) -> bool {
        self.source.is_some() || self.paper.is_some()
    }

    /// Whose experiment: the source up to its first comma or colon outside brackets.
    pub(crate) fn paper_name(&self) -> &str {
        let Some(source) = &self.source else {
            return BEYOND;
        };
        let mut depth = 0;
        let ends = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && matches!(c, ',' | ':' | ';')
        };
        source.split(ends).next().unwrap_or(source)
    }
}

impl Ratio {
    pub(crate) fn of(ratios: &[f64]) -> Option<Self> {
        Some(Self {
            of: Summary::of(ratios.iter().copied())?,
            cells: ratios.len(),
        })
    }
}

fn ours(result: &LabResult, number: Option<&answer::Number>) -> String {
    match (number, &result.answer, result.main_metric()) {
        (Some(number), Some(answer), _) => answer.sentence.replacen("{}", &number.ours, 1),
        (_, _, Some(metric)) => chosen::finding(result, metric),
        _ => "no figure".to_owned(),
    }
}

/// The paper's figures of the first metric that has any: "14.5 Mbit/s to 937 Mbit/s".
fn papers(result: &LabResult) -> Option<String> {
    let name = compared(result)?;
    let range = Summary::of(
        result
            .cells
            .iter()
            .filter_map(|cell| cell.paper_figure(name)),
    )?;
    let metric = Metric::of(name);
    Some(match range.min < range.max {
        true => format!(
            "{}: {} to {}",
            metric.label,
            metric.print(range.min),
            metric.print(range.max)
        ),
        false => format!("{}: {}", metric.label, metric.print(range.min)),
    })
}

fn ratios(result: &LabResult) -> Vec<f64> {
    let of = |name: &str| {
        result
            .cells
            .iter()
            .filter_map(|cell| heat::ratio(cell, name))
            .collect()
    };
    compared(result).map_or_else(Vec::new, of)
}

/// The main metric if the paper has it, else the first that it has.
fn compared(result: &LabResult) -> Option<&str> {
    let mut names = result.main_metric().into_iter().chain(
        result
            .cells
            .iter()
            .flat_map(|cell| cell.paper.keys().map(String::as_str)),
    );
    names.find(|name| {
        result
            .cells
            .iter()
            .any(|cell| heat::ratio(cell, name).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up::download;

    #[test]
    fn a_row_tells_ours_the_papers_and_their_ratio() {
        let row = Experiment::of(&download(), String::new());
        assert_eq!(row.ours, "Two relays make the download 7.5× faster");
        assert_eq!(row.paper.as_deref(), Some("5.69×, from 91 s to 16 s"));
        let ratio = row.ratio.unwrap().of.median;
        assert!((ratio - 7.4976 / 5.6875).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn without_an_answer_the_ratio_is_the_median_over_cells() {
        let mut result = download();
        result.answer = None;
        for (cell, ours) in result.cells.iter_mut().zip([1.0, 3.0]) {
            cell.metrics = [("goodput_bps".to_owned(), Summary::of([ours]).unwrap())].into();
            cell.paper = [("goodput_bps".to_owned(), 2.0)].into();
        }
        let ratio = Experiment::of(&result, String::new()).ratio.unwrap();
        assert_eq!(
            (ratio.of.min, ratio.of.median, ratio.of.max, ratio.cells),
            (0.5, 1.0, 1.5, 2)
        );
    }
}
