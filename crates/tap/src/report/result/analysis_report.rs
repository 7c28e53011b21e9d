// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of an analysis with the data of its charts, and how it is read from its directory.

use super::{Analysis, SCHEMA, chart_series::ChartSeries};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::{fs, path::Path};

/// File name of the result.
pub(crate) const RESULT_FILE: &str = "result.json";
/// File name of the chart data.
pub(crate) const CHART_SERIES_FILE: &str = "time_series.jsonl";

pub(crate) const DIRECTORY_HINT: &str = "give a directory that 'longhaul tap analyze -o' wrote";

/// Result with the data of its charts, in the order of its flows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnalysisReport {
    /// The result, as it is written to JSON.
    pub analysis: Analysis,
    pub(crate) chart_series: Vec<ChartSeries>,
}

impl AnalysisReport {
    /// Reads the output of an analysis from `directory`.
    ///
    /// # Errors
    /// The directory has no result that this version can read: a usage refusal.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let text = read_text(&directory.join(RESULT_FILE))?;
        let analysis: Analysis = serde_json::from_str(&text)
            .map_err(|e| unreadable_result(directory, RESULT_FILE, e))?;
        if analysis.schema != SCHEMA {
            let reason = format!(
                "schema {}, and this version reads {SCHEMA}",
                analysis.schema
            );
            return Err(unreadable_result(directory, RESULT_FILE, reason));
        }
        let lines = read_text(&directory.join(CHART_SERIES_FILE))?;
        let chart_series = lines
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>();
        Ok(Self {
            analysis,
            chart_series: chart_series
                .map_err(|e| unreadable_result(directory, CHART_SERIES_FILE, e))?,
        })
    }
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Refusal::usage(format!("{}: {error}; {DIRECTORY_HINT}", path.display())))
}

fn unreadable_result(directory: &Path, name: &str, why: impl std::fmt::Display) -> anyhow::Error {
    Refusal::usage(format!(
        "{}: {why}; {DIRECTORY_HINT}",
        directory.join(name).display()
    ))
}
