// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches: several scenarios, one after the other, each into its own directory, and a page over
//! all of them. A result that is up to date is skipped, so an interrupted batch can be resumed.

use super::{Request, prepare::PreparedExperiment};
use anyhow::Result;
use longhaul_command::exit::{Refusal, UNDECIDED};
use longhaul_command::{errln, outln};
use longhaul_report::columns::{self, align};
use longhaul_report::metric::format_factor;
use longhaul_results::{
    report::{self, experiment::Experiment},
    result::LabResult,
};
use longhaul_units::Time;
use std::{collections::BTreeSet, path::PathBuf};

/// Exit codes after which the batch continues: success, failed runs or checks, and undecided
/// checks.
const CONTINUE: [u8; 3] = [0, 1, UNDECIDED];

/// Experiments that are ready to run.
#[derive(Debug)]
pub(crate) struct Batch {
    prepared: Vec<PreparedExperiment>,
    out: PathBuf,
    restart: bool,
    json: bool,
}

impl Batch {
    /// Reads and checks all scenarios, so that a problem is found before the first one runs.
    pub(crate) fn read(scenarios: &[String], request: &Request) -> Result<Self> {
        let mut names = BTreeSet::new();
        let mut prepared = Vec::new();
        for scenario in scenarios {
            let mut lab = PreparedExperiment::read(scenario, request)?;
            if !names.insert(lab.experiment.name.clone()) {
                return Err(duplicate_name(scenario, &lab.experiment.name));
            }
            lab.out = request.out.join(&lab.experiment.name);
            prepared.push(lab);
        }
        prepared
            .iter()
            .try_for_each(PreparedExperiment::check_resumable)?;
        Ok(Self {
            prepared,
            out: request.out.clone(),
            restart: request.restart,
            json: request.json,
        })
    }

    /// Runs every scenario whose result is not up to date.
    ///
    /// Returns the exit code: that of a scenario that ended the batch, else 1 if any run failed or
    /// any check does not hold, else the code for undecided checks.
    pub(crate) fn execute(self) -> Result<u8> {
        let count = self.prepared.len();
        let directories: Vec<PathBuf> = self.prepared.iter().map(|lab| lab.out.clone()).collect();
        for (n, lab) in self.prepared.into_iter().enumerate() {
            let heading = format!("({}/{count}) {}", n + 1, lab.experiment.name);
            if !self.restart && is_up_to_date(&lab) {
                errln!("{heading}: up to date, skipped (--restart runs it again)");
                continue;
            }
            errln!("{heading}: {}", lab.experiment.scenario.title);
            let code = lab.execute()?;
            if !CONTINUE.contains(&code) {
                return Ok(code);
            }
        }
        let pages = report::pages(&[self.out], None)?;
        let experiments = directories
            .iter()
            .map(|directory| LabResult::read(&directory.join("result.json")))
            .map(|result| Ok(Experiment::new(&result?, String::new())))
            .collect::<Result<Vec<_>>>()?;
        if !self.json {
            outln!("\n{}", text(&experiments));
            pages
                .iter()
                .for_each(|page| outln!("Overview: {}", page.display()));
        }
        Ok(match () {
            () if experiments.iter().any(Experiment::has_failed) => 1,
            () if experiments.iter().all(Experiment::has_passed) => 0,
            () => UNDECIDED,
        })
    }
}

fn duplicate_name(scenario: &str, name: &str) -> anyhow::Error {
    Refusal::usage(format!(
        "{scenario}: another scenario here is called {name} too, and both would go into the same directory; run them \
         one by one, each with an --out of its own"
    ))
}

/// Whether the directory has a complete result of this experiment without failed runs.
fn is_up_to_date(lab: &PreparedExperiment) -> bool {
    LabResult::read(&lab.out.join("result.json")).is_ok_and(|result| {
        let mut runs = result.cells.iter().flat_map(|cell| &cell.runs);
        let good = runs.all(|run| run.failed.is_none());
        good && result.identity.as_ref() == Some(&lab.identity)
    })
}

/// Table with one line for each experiment, and a summary line.
fn text(experiments: &[Experiment]) -> String {
    let heading = [
        "experiment",
        "result/reference",
        "checks",
        "duration",
        "result",
    ]
    .map(str::to_owned);
    let mut rows: Vec<Vec<String>> = std::iter::once(heading.to_vec())
        .chain(experiments.iter().map(row))
        .collect();
    if !experiments.iter().any(Experiment::has_reference) {
        rows.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    let mut lines = align(&rows);
    lines.push(String::new());
    lines.push(sum(experiments));
    columns::join_lines(&lines)
}

fn row(experiment: &Experiment) -> Vec<String> {
    let ratio = experiment
        .ratio
        .map(|ratio| format_factor(ratio.summary.median));
    let duration = experiment
        .duration_s
        .map(|s| Time::from_secs_f64(s).to_string());
    vec![
        experiment.scenario.clone(),
        ratio.unwrap_or("–".to_owned()),
        checks_cell(experiment),
        duration.unwrap_or_default(),
        experiment.headline.clone(),
    ]
}

fn checks_cell(experiment: &Experiment) -> String {
    let ([passed, checks], [good, runs]) = (experiment.checks, experiment.runs);
    let open = experiment.undecided;
    let checks = match (checks - passed - open, open) {
        _ if checks == 0 => "none".to_owned(),
        (0, 0) => format!("all {checks}"),
        (0, open) => format!("{open} of {checks} undecided"),
        (failed, 0) => format!("{failed} of {checks} failed"),
        (failed, open) => format!("{failed} of {checks} failed, {open} undecided"),
    };
    match runs - good {
        0 => checks,
        failed => format!("{checks}, {failed} of {runs} runs failed"),
    }
}

fn sum(experiments: &[Experiment]) -> String {
    let passed = experiments.iter().filter(|one| one.has_passed()).count();
    let duration_s = experiments
        .iter()
        .filter_map(|one| one.duration_s)
        .sum::<f64>();
    format!(
        "{passed} of {} scenarios passed all checks; total duration of the runs: {}",
        experiments.len(),
        Time::from_secs_f64(duration_s.round())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(checks: [usize; 2], runs: [usize; 2]) -> Experiment {
        let result: LabResult =
            serde_json::from_str(include_str!("../../../results/tests/fixtures/result.json"))
                .unwrap();
        let mut experiment = Experiment::new(&result, String::new());
        experiment.checks = checks;
        experiment.runs = runs;
        experiment.duration_s = Some(80.0);
        experiment
    }

    #[test]
    fn table_has_one_line_per_experiment() {
        let all = [
            experiment([3, 3], [6, 6]),
            experiment([1, 3], [5, 6]),
            experiment([0, 0], [6, 6]),
        ];
        insta::assert_snapshot!(text(&all));
    }
}
