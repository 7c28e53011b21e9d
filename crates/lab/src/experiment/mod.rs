// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of an experiment: a scenario with its cells, each with the parameters filled in.

pub(crate) mod cells;
pub(crate) mod file;

use crate::scenario::{
    Scenario,
    value::{self, plain_text},
};
use anyhow::Result;
use file::ScenarioFile;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// Plan of an experiment, made from a scenario and the options of the command line.
#[derive(Debug)]
pub(crate) struct ExperimentPlan {
    pub(crate) name: String,
    /// Scenario with the default parameters. Values that all cells share are read from it.
    pub(crate) scenario: Scenario,
    pub(crate) cells: Vec<Cell>,
    pub(crate) quick: bool,
    pub(crate) file: ScenarioFile,
}

impl ExperimentPlan {
    /// Returns the index of the only cell whose varied values match.
    pub(crate) fn find_cell(&self, wanted: &[(String, String)]) -> Result<usize, String> {
        let matching: Vec<usize> = (0..self.cells.len())
            .filter(|index| self.cells[*index].matches(wanted))
            .collect();
        match matching[..] {
            [only] => Ok(only),
            _ => {
                let text: Vec<_> = wanted.iter().map(|(k, v)| format!("{k}={v}")).collect();
                Err(format!(
                    "{{{}}} matches {} cells instead of one",
                    text.join(","),
                    matching.len()
                ))
            }
        }
    }

    /// SHA-256, in hex, of everything that decides what runs: the cells in their order,
    /// repetitions, warm-up runs and `quick`.
    pub(crate) fn digest(&self) -> Result<String> {
        let scenario = &self.scenario;
        let mut digest = Sha256::new();
        digest.update(serde_json::to_vec(&(
            scenario.repetitions,
            scenario.warmup_runs,
            self.quick,
        ))?);
        for cell in &self.cells {
            digest.update(serde_json::to_vec(&(
                &cell.values,
                &cell.scenario,
                &cell.quick_scenario,
            ))?);
        }
        Ok(digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Makes all cells run under simulated time.
    pub(crate) fn simulate(&mut self) {
        for cell in &mut self.cells {
            cell.scenario.simulated = true;
            cell.quick_scenario.simulated = true;
        }
    }

    /// Scenarios of the cells that run on the testbed, not under simulated time.
    pub(crate) fn on_testbed(&self) -> impl Iterator<Item = &Scenario> {
        let scenarios = self.cells.iter().map(|cell| &cell.scenario);
        scenarios.filter(|scenario| !scenario.simulated)
    }

    /// Whether any cell runs on the testbed.
    pub(crate) fn needs_testbed(&self) -> bool {
        self.on_testbed().next().is_some()
    }
}

/// Cell: one combination of parameters.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) values: Table,
    pub(crate) label: Option<String>,
    /// Scenario with this cell's parameters.
    pub(crate) scenario: Scenario,
    /// Shortened scenario for warm-up runs.
    pub(crate) quick_scenario: Scenario,
}

impl Cell {
    /// Returns the cell's label, or its varied values if it has none.
    pub(crate) fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| {
            let text_pairs: Vec<_> = self
                .values
                .iter()
                .map(|(k, v)| format!("{k}={}", plain_text(v)))
                .collect();
            text_pairs.join(", ")
        })
    }

    /// Whether each pair matches one of the cell's varied values.
    pub(crate) fn matches(&self, wanted: &[(String, String)]) -> bool {
        self.all(wanted, value::matches)
    }

    /// Whether each pair matches one of the cell's varied values. A pair may have alternatives:
    /// `loss=0|0.001`.
    pub(crate) fn is_among(&self, wanted: &[(String, String)]) -> bool {
        self.all(wanted, value::matches_any)
    }

    fn all(&self, wanted: &[(String, String)], names: fn(&str, &Value) -> bool) -> bool {
        let has = |(key, text): &(String, String)| {
            self.values.get(key).is_some_and(|own| names(text, own))
        };
        wanted.iter().all(has)
    }
}

/// Options of the command line that change the experiment.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(crate) quick: bool,
    /// Parameters as `name=value`.
    pub(crate) set: Vec<(String, String)>,
    /// Selects the cells whose varied values match all of these.
    pub(crate) filter: Vec<(String, String)>,
    pub(crate) repetitions: Option<u32>,
    pub(crate) seed: Option<u64>,
}

/// Converts a table of varied values to pairs of text.
pub(crate) fn text_pairs(table: &Table) -> Vec<(String, String)> {
    table
        .iter()
        .map(|(key, value)| (key.clone(), plain_text(value)))
        .collect()
}
