// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan validate`: compares predictions with measurements of the lab.

mod args;
mod config;
mod forecast;
mod report;

pub(super) use args::Args;

use anyhow::Result;
use config::Config;
use longhaul_command::outln;
use longhaul_lab::paths;
use longhaul_results::result::{LabResult, LinkStats};
use report::{CheckReport, LateLink, Row};
use std::path::Path;

/// Runs the command.
pub(super) fn run(config: &Config) -> Result<()> {
    let mut checked = CheckReport::default();
    for file in &config.results {
        let result = read(file)?;
        checked.rows.extend(check(&result, config)?);
        checked.links.extend(late_links(&result));
    }
    match config.json {
        true => outln!("{}", report::json(&checked)),
        false => outln!("{}", report::text(&checked)),
    }
    Ok(())
}

/// Greatest 99th percentile of an emulator's delay error that counts as exact, microseconds.
const DELAY_ERROR_MAX_US: f64 = 1000.0;

/// Returns the emulated links whose packets were late: their delay exceeded the configured one.
fn late_links(result: &LabResult) -> Vec<LateLink> {
    let late = |link: &&LinkStats| link.delay_error_us.p99 > DELAY_ERROR_MAX_US;
    let links = result.links.iter().filter(late);
    links
        .map(|link| LateLink {
            scenario: result.scenario.clone(),
            link: link.name.clone(),
            p99_us: link.delay_error_us.p99,
        })
        .collect()
}

/// Returns a row for each flow with a measured goodput.
fn check(result: &LabResult, config: &Config) -> Result<Vec<Row>> {
    let flows = paths::flow_paths(result, config.scenario.as_deref(), config.settings.clone())?;
    let mut rows = Vec::new();
    for flow in flows {
        let cell = &result.cells[flow.cell];
        let Some(measured) = cell.metrics.get(&flow.metric) else {
            continue;
        };
        rows.push(Row {
            scenario: result.scenario.clone(),
            cell: cell.name(),
            metric: flow.metric.clone(),
            lossy: flow.legs.iter().any(|leg| leg.loss > 0.0),
            measured_bps: measured.median,
            forecast: forecast::forecast(&flow)?,
            overloaded: cell.runs.iter().any(|run| run.overload.is_some()),
            simulated: cell.simulated,
        });
    }
    Ok(rows)
}

/// Reads a result file, or that in the directory of a run.
fn read(path: &Path) -> Result<LabResult> {
    match path.is_dir() {
        true => LabResult::read(&path.join("result.json")),
        false => LabResult::read(path),
    }
}
