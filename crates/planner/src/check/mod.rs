// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan check`: predictions beside what the lab measured.

mod forecast;
mod report;

use anyhow::Result;
use longhaul_command::{exit::Refusal, say};
use longhaul_lab::paths;
use longhaul_results::result::{LabResult, LinkAccount};
use report::{Checked, LateLink, Row};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  longhaul plan check out/relay-efficiency
      predicted and measured goodput of every flow in every cell
  longhaul plan check --scenario mine.toml --set edge=50mbit out/mine
      of a scenario that is not built in, run with another parameter";

/// Arguments of `longhaul plan check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory that longhaul lab run wrote, or its result.json
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// The scenario that was run [default: the built-in one of the result's name]
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,
    /// A parameter that lab run was given; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let mut checked = Checked::default();
    for file in &args.results {
        let result = read(file)?;
        checked.rows.extend(check(&result, args)?);
        checked.links.extend(late_links(&result));
    }
    match args.json {
        true => say!("{}", report::json(&checked)),
        false => say!("{}", report::text(&checked)),
    }
    Ok(())
}

/// How late an emulator may be that counts as exact.
const LATE_US: f64 = 1000.0;

/// Emulated links that the machine did not keep up with: what passed them is not what was configured.
fn late_links(result: &LabResult) -> Vec<LateLink> {
    let late = |link: &&LinkAccount| link.delay_error_us.p99 > LATE_US;
    let links = result.links.iter().filter(late);
    links
        .map(|link| LateLink {
            scenario: result.scenario.clone(),
            link: link.name.clone(),
            p99_us: link.delay_error_us.p99,
        })
        .collect()
}

/// A row for each flow with a measured goodput.
fn check(result: &LabResult, args: &Args) -> Result<Vec<Row>> {
    let flows = paths::of(result, args.scenario.as_deref(), settings(&args.set)?)?;
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
            disturbed: cell.runs.iter().any(|run| run.disturbed.is_some()),
            simulated: cell.simulated,
        });
    }
    Ok(rows)
}

/// A result, or that of a directory that a run wrote.
fn read(path: &Path) -> Result<LabResult> {
    match path.is_dir() {
        true => LabResult::read(&path.join("result.json")),
        false => LabResult::read(path),
    }
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| {
        let pair = text.split_once('=');
        let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Refusal::usage(format!("--set {text:?} is not NAME=VALUE")))
    };
    set.iter().map(pair).collect()
}
