// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading of scenarios: their sources, parameters, keys and cells.

pub(crate) mod cells;
mod experiment;
pub(crate) mod keys;
pub(crate) mod library;
pub(crate) mod parameters;
pub(crate) mod scenario_file;

pub(crate) use experiment::{Cell, Choices, ExperimentPlan, text_pairs};
pub(crate) use library::Source;
