// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc load`.

use super::{default_setting, output::say, place::Place};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    Error,
    loader::{self, Loaded, Outcome, Request},
    math::{Algorithm, parameters},
};
use serde_json::{Map, Value, json};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  sudo longhaul cc load bic
  sudo longhaul cc load bic --param ack_shift=3 --param beta=717
  sudo longhaul cc load bic --param ack_shift=6 --replace
      other parameters, for connections that begin from now on
  sudo longhaul cc load bic --default
      for all sockets of this network namespace that don't choose; unload puts the old one back
  sudo longhaul cc load bic --per-socket /sys/fs/cgroup/system.slice
      services may set parameters socket by socket: longhaul cc show names the options

It stays until longhaul cc unload, or until the machine stops.
Exit codes: 0 loaded, or was so already; 1 loaded otherwise; 2 no such name or parameter;
3 not permitted, not supported by this kernel, or the name is taken.";

/// Arguments of `longhaul cc load`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Congestion control, with or without lh_; repeatable
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Parameter of its connections, NAME=VALUE; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Take the place of one that is loaded with other parameters or by another longhaul
    #[arg(long)]
    replace: bool,
    /// Give programs of this cgroup (version 2) a socket option for parameters of single sockets
    #[arg(long, value_name = "CGROUP")]
    per_socket: Option<PathBuf>,
    /// Count each connection's ACKs and by how much they move the acknowledgement number (AckDiff),
    /// for longhaul cc watch; for connections that begin from now on
    #[arg(long)]
    count_acks: bool,
    /// Make it the default of this network namespace
    #[arg(long)]
    default: bool,
    /// Print JSON, one line a congestion control
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command: first everything is checked, then touched.
pub(super) fn run(args: &Args) -> Result<()> {
    let wanted = wanted(args)?;
    let cgroup = args.per_socket.as_deref().map(open_cgroup).transpose()?;
    for (algorithm, values) in &wanted {
        let request = Request {
            parameters: values,
            count_acks: args.count_acks,
        };
        let outcome = loader::load(&args.place.pins(), *algorithm, request, args.replace);
        let outcome = outcome.map_err(Error::refusal)?;
        if let Some(cgroup) = &cgroup {
            loaded(&outcome)
                .serve(cgroup.as_fd())
                .map_err(Error::refusal)?;
        }
        let before = match args.default {
            true => Some(default_setting::set(loaded(&outcome))?),
            false => None,
        };
        tell(args, &outcome, values, before.as_deref())?;
    }
    Ok(())
}

fn wanted(args: &Args) -> Result<Vec<(Algorithm, Vec<u32>)>> {
    let one = |what: &str| match args.names.len() {
        1 => Ok(()),
        _ => Err(Refusal::usage(format!(
            "{what} is for one congestion control at a time"
        ))),
    };
    if !args.param.is_empty() {
        one("--param")?;
    }
    if args.default {
        one("--default")?;
    }
    let names = args.names.iter();
    names
        .map(|name| {
            let algorithm = parameters::named(name).map_err(Error::refusal)?;
            let values = parameters::values(algorithm, &args.param).map_err(Error::refusal)?;
            Ok((algorithm, values))
        })
        .collect()
}

fn open_cgroup(path: &Path) -> Result<OwnedFd> {
    let open = longhaul_linux::cgroup::at(path);
    open.map_err(|error| {
        Refusal::usage(format!(
            "--per-socket {}: {error}; it wants the directory of a cgroup of version 2",
            path.display()
        ))
    })
}

fn loaded(outcome: &Outcome) -> &Loaded {
    match outcome {
        Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _) => it,
    }
}

fn tell(args: &Args, outcome: &Outcome, values: &[u32], before: Option<&str>) -> Result<()> {
    let algorithm = loaded(outcome).algorithm();
    let did = match outcome {
        Outcome::New(_) => "loaded",
        Outcome::Same(_) => "already loaded",
        Outcome::Replaced(..) => "replaced",
    };
    if args.json {
        let parameters = by_name(algorithm, values);
        let line = json!({ "name": algorithm.system_name(), "did": did, "parameters": parameters,
            "default_before": before });
        return say(&format!("{line}\n"));
    }
    say(&format!(
        "{}: {did}{}\n",
        algorithm.system_name(),
        in_words(algorithm, values)
    ))?;
    if let Outcome::Replaced(_, false) = outcome {
        say(
            "open connections of the one before go on, but can no longer be watched: it was \
             another longhaul's\n",
        )?;
    }
    match before {
        Some(before) => say(&format!(
            "default of this network namespace: {before} -> {}\n",
            algorithm.system_name()
        )),
        None => Ok(()),
    }
}

/// `{"ai": 100}`
pub(super) fn by_name(algorithm: Algorithm, values: &[u32]) -> Map<String, Value> {
    let pairs = algorithm.parameters().zip(values);
    pairs
        .map(|(p, value)| (p.name.to_owned(), json!(value)))
        .collect()
}

/// `, ai=100 md_shift=3`
fn in_words(algorithm: Algorithm, values: &[u32]) -> String {
    let pairs = algorithm.parameters().zip(values);
    let words: Vec<_> = pairs
        .map(|(p, value)| format!("{}={value}", p.name))
        .collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(", {}", words.join(" ")),
    }
}
