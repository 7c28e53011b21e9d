// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul probe`: how long packets take one way, and which of them are lost, by the kernel's own
//! clock at both ends. It knows nothing of `link`, so it can judge it.
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
mod conformance;
mod expectation;
mod measure;
mod recording;

use anyhow::{Context, Result};
pub use args::Args;
pub use conformance::{check_conformance, figure_names};
use expectation::Expectation;
use longhaul_command::exit::Refusal;
use longhaul_command::outln;
use longhaul_linux::netns::{self, Netns};
use measure::ProbePlan;
pub use recording::{Recording, Timing};
use serde_json::Value;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let expected = Expectation::parse(&args.expect, args.timing()?)?;
    let plan = probe_plan(args)?;
    let recording = measure::measure(&plan)?;
    if let Some(path) = &args.records {
        let write = || recording.write(std::fs::File::create(path)?);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    let Some(expected) = expected else {
        return print_result(args, &recording, None);
    };
    let conformance = check_conformance(&recording, &expected.config);
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
        wait: args.wait,
    })
}

/// A missing namespace is named with what would make it.
fn open_namespace(name: Option<&str>) -> Result<Netns> {
    let Some(name) = name else {
        return Ok(Netns::current()?);
    };
    Netns::named(name).map_err(|error| {
        Refusal::usage(format!(
            "network namespace {name:?} in {}: {error}; make it with: ip netns add {name}",
            netns::DIRECTORY
        ))
    })
}

fn print_result(
    args: &Args,
    recording: &Recording,
    conformance: Option<(&conformance::Conformance, &[String])>,
) -> Result<()> {
    let mut result = serde_json::to_value(&recording.summary)?;
    let verdict = conformance.map(|(verdict, _)| verdict);
    let figures = verdict.map(serde_json::to_value).transpose()?;
    if let (Value::Object(all), Some(Value::Object(figures))) = (&mut result, figures) {
        all.extend(figures);
    }
    if let Some((_, faults)) = conformance {
        result["as_expected"] = faults.is_empty().into();
        result["faults"] = faults.into();
    }
    if args.json {
        outln!("{result}");
        return Ok(());
    }
    outln!("{}", recording.summary);
    if let Some(verdict) = verdict {
        outln!("{verdict}");
    }
    if conformance.is_some_and(|(_, faults)| faults.is_empty()) {
        outln!("as expected");
    }
    Ok(())
}
