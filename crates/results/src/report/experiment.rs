// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a result in one row: its headline, the reference value, their ratio, and the checks.

use super::{
    figure::{default_figures, heat},
    headline,
};
use crate::{result::LabResult, summary::Summary};
use longhaul_report::metric::Metric;

/// Heading of experiments without a source of reference values.
pub(crate) const NO_SOURCE_HEADING: &str = "Without reference values";

/// Row of one result.
#[derive(Debug, Clone, Default)]
pub struct Experiment {
    /// URL of its page.
    pub(crate) link: String,
    /// Name of the scenario.
    pub scenario: String,
    pub(crate) title: String,
    pub(crate) question: String,
    /// Source of the reference values.
    pub(crate) source: Option<String>,
    /// Headline, or the main metric as text.
    pub headline: String,
    pub(crate) reference: Option<String>,
    /// Factor by which the result is better than the reference; the median over several cells.
    pub ratio: Option<Ratio>,
    /// Number of passed checks, and of all checks.
    pub checks: [usize; 2],
    /// Number of undecided checks.
    pub undecided: usize,
    /// Number of runs that did not fail, and of all runs.
    pub runs: [usize; 2],
    pub(crate) started: jiff::Timestamp,
    /// Duration of all runs, seconds.
    pub duration_s: Option<f64>,
    pub(crate) quick: bool,
    /// Description of the simulated cells.
    pub(crate) simulated: Option<String>,
}

/// Ratio of the result to the reference, inverted if less is better.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// Median and range over the cells.
    pub summary: Summary,
    /// Number of cells.
    pub(crate) cells: usize,
}

impl Experiment {
    /// Creates the row of a result; `link` is the URL of its page.
    pub fn new(result: &LabResult, link: String) -> Self {
        let value = result
            .headline
            .as_ref()
            .and_then(|headline| headline::value(result, headline));
        let about = result.about.clone().unwrap_or_default();
        let runs = || result.cells.iter().flat_map(|cell| &cell.runs);
        let ratio = value
            .as_ref()
            .and_then(|value| value.ratio)
            .map(|ratio| Ratio::new(&[ratio]));
        Self {
            link,
            scenario: result.scenario.clone(),
            title: result.title().to_owned(),
            question: about.question.unwrap_or_default(),
            source: about.source,
            headline: headline(result, value.as_ref()),
            reference: value
                .and_then(|value| value.reference)
                .or_else(|| reference_range(result)),
            ratio: ratio.flatten().or_else(|| Ratio::new(&ratios(result))),
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
            started: result.started,
            duration_s: result.duration_s,
            quick: result.quick,
            simulated: result.simulated(),
        }
    }

    /// Returns whether every check holds and no run failed.
    pub fn has_passed(&self) -> bool {
        self.checks[0] == self.checks[1] && self.runs[0] == self.runs[1]
    }

    /// Returns whether a run failed, or a check was decided and does not hold.
    pub fn has_failed(&self) -> bool {
        self.checks[0] + self.undecided < self.checks[1] || self.runs[0] < self.runs[1]
    }

    /// Returns whether it has reference values, or names their source.
    pub fn has_reference(&self) -> bool {
        self.source.is_some() || self.reference.is_some()
    }

    /// Returns the authors of the reference values: the source up to its first comma or colon outside brackets.
    pub(crate) fn source_name(&self) -> &str {
        let Some(source) = &self.source else {
            return NO_SOURCE_HEADING;
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
    pub(crate) fn new(ratios: &[f64]) -> Option<Self> {
        Some(Self {
            summary: Summary::of(ratios.iter().copied())?,
            cells: ratios.len(),
        })
    }
}

fn headline(result: &LabResult, value: Option<&headline::HeadlineValue>) -> String {
    match (value, &result.headline, result.main_metric()) {
        (Some(value), Some(headline), _) => headline.template.replacen("{}", &value.text, 1),
        (_, _, Some(metric)) => default_figures::title(result, metric),
        _ => "no value".to_owned(),
    }
}

/// Returns the range of the reference values of the first metric that has any: "14.5 Mbit/s to 937 Mbit/s".
fn reference_range(result: &LabResult) -> Option<String> {
    let name = comparable_metric(result)?;
    let range = Summary::of(
        result
            .cells
            .iter()
            .filter_map(|cell| cell.reference_value(name)),
    )?;
    let metric = Metric::of(name);
    Some(if range.min < range.max {
        format!(
            "{}: {} to {}",
            metric.label,
            metric.format(range.min),
            metric.format(range.max)
        )
    } else {
        format!("{}: {}", metric.label, metric.format(range.min))
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
    comparable_metric(result).map_or_else(Vec::new, of)
}

/// Returns the main metric if it has a reference value, else the first metric that has one.
fn comparable_metric(result: &LabResult) -> Option<&str> {
    let mut names = result.main_metric().into_iter().chain(
        result
            .cells
            .iter()
            .flat_map(|cell| cell.reference.keys().map(String::as_str)),
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
    use crate::report::fixtures::download;

    #[test]
    fn row_has_headline_reference_and_their_ratio() {
        let row = Experiment::new(&download(), String::new());
        assert_eq!(row.headline, "Two relays make the download 7.5× faster");
        assert_eq!(row.reference.as_deref(), Some("5.69×, from 91 s to 16 s"));
        let ratio = row.ratio.unwrap().summary.median;
        assert!((ratio - 7.4976 / 5.6875).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn ratio_is_median_over_cells_without_headline() {
        let mut result = download();
        result.headline = None;
        for (cell, value) in result.cells.iter_mut().zip([1.0, 3.0]) {
            cell.metrics = [("goodput_bps".to_owned(), Summary::of([value]).unwrap())].into();
            cell.reference = [("goodput_bps".to_owned(), 2.0)].into();
        }
        let ratio = Experiment::new(&result, String::new()).ratio.unwrap();
        assert_eq!(
            (
                ratio.summary.min,
                ratio.summary.median,
                ratio.summary.max,
                ratio.cells
            ),
            (0.5, 1.0, 1.5, 2)
        );
    }
}
