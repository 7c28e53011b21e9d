// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul probe`: how long packets take one way, and which of them are lost, by the kernel's own
//! clock at both ends. It knows nothing of `link`, so it can judge it.

mod args;
mod judge;
mod measure;
mod recording;

use crate::exit::Refusal;
use anyhow::{Context, Result};
pub(crate) use args::Args;
use host::netns::{self, Netns};
pub(crate) use judge::{figures, judge};
use measure::Plan;
use model::link::{Setting, Shape};
pub(crate) use recording::{Recording, Timing};
use serde_json::Value;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let expected = expected(&args.expect)?;
    let plan = plan(args)?;
    let recording = measure::measure(&plan)?;
    if let Some(path) = &args.records {
        let write = || recording.write(std::fs::File::create(path)?);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    let verdict = expected.map(|shape| judge(&recording, &shape));
    tell(args, &recording, verdict.as_ref())
}

/// A wire as `--expect` describes it; `None` if nothing is expected.
fn expected(settings: &[String]) -> Result<Option<Shape>> {
    let mut shape = Shape::default();
    for text in settings {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Refusal::usage(format!("--expect {text:?} is not KEY=VALUE")))?;
        shape.apply(Setting::parse(key.trim(), value).map_err(Refusal::usage)?);
    }
    shape.check().map_err(Refusal::usage)?;
    Ok((!settings.is_empty()).then_some(shape))
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

fn tell(args: &Args, recording: &Recording, verdict: Option<&judge::Verdict>) -> Result<()> {
    let mut all = serde_json::to_value(&recording.summary)?;
    let judged = verdict.map(serde_json::to_value).transpose()?;
    if let (Value::Object(all), Some(Value::Object(judged))) = (&mut all, judged) {
        all.extend(judged);
    }
    if args.json {
        say!("{all}");
        return Ok(());
    }
    say!("{}", recording.summary);
    if let Some(verdict) = verdict {
        say!("{verdict}");
    }
    Ok(())
}
