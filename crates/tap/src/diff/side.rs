// SPDX-License-Identifier: MIT OR Apache-2.0
//! Side of a comparison: one flow, in the direction with more data.

use crate::{
    analyze,
    report::{AnalysisReport, DirectionView, direction_name},
    series::column,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_flow::record::{Direction, Flow};
use std::path::Path;

/// Direction of a flow of a result.
pub(super) struct Side<'a> {
    /// Path of the result, as on the command line.
    pub(super) source: String,
    pub(super) report: &'a AnalysisReport,
    pub(super) flow: &'a Flow,
    pub(super) upload: bool,
}

impl<'a> Side<'a> {
    /// Selects the flow with this number, or the largest.
    ///
    /// # Errors
    /// The result has no such flow: a usage refusal.
    pub(super) fn select(
        path: &Path,
        report: &'a AnalysisReport,
        number: Option<u64>,
    ) -> Result<Self> {
        let flows = &report.analysis.flows;
        let found = match number {
            Some(number) => flows.iter().find(|flow| flow.number == number),
            None => flows.first(),
        };
        let flow = found.ok_or_else(|| missing_flow(path, number))?;
        Ok(Self {
            source: path.display().to_string(),
            report,
            flow,
            upload: flow.upload.data.unique_bytes >= flow.download.data.unique_bytes,
        })
    }

    pub(super) fn direction(&self) -> &'a Direction {
        self.flow.direction(self.upload)
    }

    /// Returns the chart data, if the flow has charts.
    pub(super) fn view(&self) -> Option<DirectionView<'a>> {
        let direction = column::direction(self.upload);
        let all_series = self.report.chart_series.iter();
        let mut matching = all_series
            .filter(|series| series.flow == self.flow.number && series.direction == direction);
        DirectionView::find(&self.report.analysis, matching.next()?)
    }

    /// Returns the name, for instance "out/reno: 10.0.0.1:40000 → 10.0.0.2:5201".
    pub(super) fn name(&self) -> String {
        let capture_point = self
            .report
            .analysis
            .capture_point_name(self.flow.capture_point);
        format!(
            "{}: {}",
            self.source,
            direction_name(self.flow, self.upload, capture_point)
        )
    }
}

fn missing_flow(path: &Path, number: Option<u64>) -> anyhow::Error {
    let path = path.display();
    match number {
        Some(number) => Refusal::usage(format!(
            "{path}: no flow {number} in result.json; each flow there has its number"
        )),
        None => Refusal::usage(format!("{path}: the capture has no TCP connection")),
    }
}

/// Reads the result in a directory, or analyses a capture file.
///
/// # Errors
/// `path` is neither: a refusal.
pub(super) fn open(path: &Path) -> Result<AnalysisReport> {
    if path.is_dir() {
        AnalysisReport::read(path)
    } else {
        analyze::capture(path)
    }
}
