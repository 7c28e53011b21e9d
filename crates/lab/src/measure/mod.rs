// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurement of runs: samples over time, and the metrics computed from them and from the reports
//! of programs, links and captures.

pub(crate) mod captures;
pub(crate) mod connections;
pub(crate) mod figures;
pub(crate) mod links;
pub(crate) mod recording;
pub(crate) mod time_series;

pub(crate) use connections::Flows;
pub(crate) use figures::Outcome;
pub(crate) use recording::{Recording, Sample};
