// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implementation of `longhaul probe`, which measures one-way delays and losses with the kernel's timestamps at both
//! ends.
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     probe: longhaul_probe::Args,
//! }
//!
//! let cli = Cli::parse_from(["probe", "--from", "near", "--to", "far"]);
//! longhaul_probe::run(&cli.probe).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod measure;

use anyhow::{Context, Result};
pub use args::Args;
use longhaul_command::{exit::Refusal, outln};
use longhaul_linux::netns::Netns;
use longhaul_netem::conformance::{Conformance, Expectation, Recording};
use measure::ProbePlan;
use serde_json::Value;

/// Runs the command: sends the packets, prints the result, and compares it with the expected settings, if any.
pub fn run(args: &Args) -> Result<()> {
    let expected = Expectation::parse(&args.expect, args.timing()?).map_err(Refusal::usage)?;
    let plan = probe_plan(args)?;
    let recording = measure::measure(&plan)?;
    if let Some(path) = &args.records {
        let write = || recording.write(std::fs::File::create(path)?);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    let Some(expected) = expected else {
        return print_result(args, &recording, None);
    };
    let conformance = expected.conformance(&recording);
    let deviations = expected.deviations(&recording, &conformance);
    print_result(
        args,
        &recording,
        Some((&conformance, deviations.as_slice())),
    )?;
    anyhow::ensure!(
        deviations.is_empty(),
        "the path is not as expected: {}",
        deviations.join("; ")
    );
    Ok(())
}

fn probe_plan(args: &Args) -> Result<ProbePlan> {
    let timing = args.timing()?;
    Ok(ProbePlan {
        from: open_namespace(args.from.as_deref())?,
        to: open_namespace(args.to.as_deref())?,
        address: args.address,
        timing,
        wait: args.wait.value,
    })
}

/// Opens a namespace, by default this process's.
fn open_namespace(name: Option<&str>) -> Result<Netns> {
    match name {
        Some(name) => Netns::named(name).map_err(Refusal::usage),
        None => Ok(Netns::current()?),
    }
}

fn print_result(
    args: &Args,
    recording: &Recording,
    conformance: Option<(&Conformance, &[String])>,
) -> Result<()> {
    let mut result = serde_json::to_value(&recording.summary)?;
    let figures = conformance.map(|(figures, _)| figures);
    let figure_values = figures.map(serde_json::to_value).transpose()?;
    if let (Value::Object(result), Some(Value::Object(values))) = (&mut result, figure_values) {
        result.extend(values);
    }
    if let Some((_, deviations)) = conformance {
        result["as_expected"] = deviations.is_empty().into();
        result["deviations"] = deviations.into();
    }
    if args.json {
        outln!("{result}");
        return Ok(());
    }
    outln!("{}", recording.summary);
    if let Some(figures) = figures {
        outln!("{figures}");
    }
    if conformance.is_some_and(|(_, deviations)| deviations.is_empty()) {
        outln!("as expected");
    }
    Ok(())
}
