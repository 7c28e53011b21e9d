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
mod expected;
mod judge;
mod measure;
mod recording;

use anyhow::{Context, Result};
pub use args::Args;
use expected::Expected;
pub use judge::{figures, judge};
use longhaul_command::exit::Refusal;
use longhaul_command::outln;
use longhaul_linux::netns::{self, Netns};
use measure::Plan;
pub use recording::{Recording, Timing};
use serde_json::Value;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let expected = Expected::read(&args.expect, args.timing()?)?;
    let plan = plan(args)?;
    let recording = measure::measure(&plan)?;
    if let Some(path) = &args.records {
        let write = || recording.write(std::fs::File::create(path)?);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    let Some(expected) = expected else {
        return tell(args, &recording, None);
    };
    let verdict = judge(&recording, &expected.shape);
    let faults = expected.faults(&recording, &verdict);
    tell(args, &recording, Some((&verdict, faults.as_slice())))?;
    anyhow::ensure!(
        faults.is_empty(),
        "the path is not as expected: {}",
        faults.join("; ")
    );
    Ok(())
}

fn plan(args: &Args) -> Result<Plan> {
    let timing = args.timing()?;
    Ok(Plan {
        from: open(args.from.as_deref())?,
        to: open(args.to.as_deref())?,
        address: args.address,
        timing,
        patience: args.wait,
    })
}

/// A missing namespace is named with what would make it.
fn open(name: Option<&str>) -> Result<Netns> {
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

fn tell(
    args: &Args,
    recording: &Recording,
    judged: Option<(&judge::Verdict, &[String])>,
) -> Result<()> {
    let mut all = serde_json::to_value(&recording.summary)?;
    let verdict = judged.map(|(verdict, _)| verdict);
    let figures = verdict.map(serde_json::to_value).transpose()?;
    if let (Value::Object(all), Some(Value::Object(figures))) = (&mut all, figures) {
        all.extend(figures);
    }
    if let Some((_, faults)) = judged {
        all["as_expected"] = faults.is_empty().into();
        all["faults"] = faults.into();
    }
    if args.json {
        outln!("{all}");
        return Ok(());
    }
    outln!("{}", recording.summary);
    if let Some(verdict) = verdict {
        outln!("{verdict}");
    }
    if judged.is_some_and(|(_, faults)| faults.is_empty()) {
        outln!("as expected");
    }
    Ok(())
}
