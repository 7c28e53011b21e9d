// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan path`: predicts the throughput of each congestion control over one path.

mod args;
mod config;
mod report;

pub(super) use args::Args;
pub(super) use config::{check_loss, check_rtt, parse_controls};

use super::estimate::estimate;
use anyhow::Result;
use config::Config;
use longhaul_command::outln;
use report::Row;

/// Runs the command.
pub(super) fn run(config: &Config) -> Result<()> {
    let mut rows = Vec::with_capacity(config.controls.len());
    for &control in &config.controls {
        let found = estimate(control, &config.path, config.method, config.span)?;
        rows.push(Row::new(control, found, config));
    }
    if config.json {
        outln!("{}", report::json(config, &rows));
    } else {
        outln!("{}", report::text(config, &rows));
    }
    Ok(())
}
