// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario that was read, with its cells: the scenario as it reads with the parameters of each.

use super::inherit::Family;
use crate::scenario::{
    Scenario,
    value::{self, plain},
};
use anyhow::Result;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// A scenario, ready to run.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) name: String,
    /// With the default parameters; what all cells share is read from here.
    pub(crate) base: Scenario,
    pub(crate) cells: Vec<Cell>,
    pub(crate) quick: bool,
    pub(crate) family: Family,
}

impl Book {
    /// The only cell whose varied values match.
    pub(crate) fn one_cell(&self, wanted: &[(String, String)]) -> Result<usize, String> {
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

    /// SHA-256 of all that decides what is run: cells, order, repetitions.
    pub(crate) fn digest(&self) -> Result<String> {
        let base = &self.base;
        let mut digest = Sha256::new();
        digest.update(serde_json::to_vec(&(
            base.repetitions,
            base.warmup,
            self.quick,
        ))?);
        for cell in &self.cells {
            digest.update(serde_json::to_vec(&(
                &cell.vary,
                &cell.scenario,
                &cell.short,
            ))?);
        }
        Ok(digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// All cells are to be simulated.
    pub(crate) fn simulate(&mut self) {
        for cell in &mut self.cells {
            cell.scenario.simulate = true;
            cell.short.simulate = true;
        }
    }

    /// What cells run on sockets.
    pub(crate) fn on_testbed(&self) -> impl Iterator<Item = &Scenario> {
        let scenarios = self.cells.iter().map(|cell| &cell.scenario);
        scenarios.filter(|scenario| !scenario.simulate)
    }

    /// Whether anything does.
    pub(crate) fn needs_testbed(&self) -> bool {
        self.on_testbed().next().is_some()
    }
}

/// One combination of parameters.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) vary: Table,
    pub(crate) label: Option<String>,
    /// The scenario with this cell's parameters.
    pub(crate) scenario: Scenario,
    /// The same, shortened: for warm-up runs.
    pub(crate) short: Scenario,
}

impl Cell {
    /// Its label, or its varied values.
    pub(crate) fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| {
            let pairs: Vec<_> = self
                .vary
                .iter()
                .map(|(k, v)| format!("{k}={}", plain(v)))
                .collect();
            pairs.join(", ")
        })
    }

    /// Whether each pair is one of its varied values.
    pub(crate) fn matches(&self, wanted: &[(String, String)]) -> bool {
        self.all(wanted, value::names)
    }

    /// Whether each pair names one of its varied values, alone or among others: `loss=0|0.001`.
    pub(crate) fn is_among(&self, wanted: &[(String, String)]) -> bool {
        self.all(wanted, value::names_one_of)
    }

    fn all(&self, wanted: &[(String, String)], names: fn(&str, &Value) -> bool) -> bool {
        let has =
            |(key, text): &(String, String)| self.vary.get(key).is_some_and(|own| names(text, own));
        wanted.iter().all(has)
    }
}

/// What the command line changes.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(crate) quick: bool,
    /// Parameters as `name=value`.
    pub(crate) set: Vec<(String, String)>,
    /// Run only cells whose varied values match all of these.
    pub(crate) only: Vec<(String, String)>,
    pub(crate) repetitions: Option<u32>,
    pub(crate) seed: Option<u64>,
}

/// A table of varied values as pairs of text.
pub(crate) fn pairs(table: &Table) -> Vec<(String, String)> {
    table
        .iter()
        .map(|(key, value)| (key.clone(), plain(value)))
        .collect()
}
