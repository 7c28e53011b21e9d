// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab`: experiments on an emulated testbed or under simulated time, and reports on them.
//!
//! # Tour
//!
//! | folder or file | subject |
//! |---|---|
//! | `scenario` | the keys of a scenario file, as types |
//! | `experiment` | the file itself, its parameters, and the plan of the experiment with its cells |
//! | `read.rs` | from the file to the plan: each cell is filled in and checked |
//! | `check` | refusals before any run, each with file, line and key |
//! | `network` | hosts, links, routes, and sockets of flows, computed without I/O |
//! | `testbed` | hosts and links as namespaces and processes; `testbed/programs` runs file servers, curl, iperf3, relays, commands |
//! | `simulated` | the same flows over `tcpsim` |
//! | `measure` | samples and captures of a run become metrics and time series |
//! | `evaluation` | claims of the scenario, figures, tables, the paper's figures beside ours |
//! | `run` | preparation, execution in order, the journal that resumes, records, batches, progress |
//!
//! `longhaul lab run` goes through them in this order: `run/prepare.rs` calls `read.rs`. For each run, `run/execution.rs`
//! calls `testbed`, `testbed/transfers.rs` and `measure/figures.rs`. At the end it calls `evaluation`, and
//! `run/prepare.rs` writes `result.json`.
//!
//! A new key needs a type in `scenario`, a check in `check`, a page entry in `docs/lab.md`, and a case in `tests`. The test of
//! `scenario/schema.rs` writes `dist/scenario.schema.json` again.
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     lab: longhaul_lab::Args,
//! }
//!
//! let cli = Cli::parse_from(["lab", "list"]);
//! longhaul_lab::run(cli.lab).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod check;
pub mod command_check;
mod evaluation;
mod experiment;
mod measure;
mod network;
mod read;
mod run;
mod scenario;
mod simulated;
mod testbed;
#[cfg(test)]
mod tests;

pub use args::{Args, DemoArgs};
pub use scenario::expression;

use anyhow::{Context, Result};
use args::Command;
use experiment::{Choices, ExperimentPlan, file};
use longhaul_command::{errln, outln};
use longhaul_linux::contained;
use run::{Batch, PreparedExperiment, Request};
use std::{collections::BTreeMap, fs, process};

/// Runs `longhaul lab`.
///
/// # Errors
/// A usage error, a machine that lacks what the scenario needs, or a failed run or check.
pub fn run(args: Args) -> Result<()> {
    let outcome = execute(args.command);
    command_check::end();
    outcome
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Run(args) => run_scenarios(args),
        Command::List => list(),
        Command::Show(args) => show(&args.scenario),
        Command::Validate(args) => check(&args.scenario),
        Command::Compare(args) => longhaul_results::compare::run(&args.into()),
        Command::Report(args) => {
            for page in longhaul_results::report::pages(&args.directories, args.index.as_deref())? {
                outln!("{}", page.display());
            }
            Ok(())
        }
        Command::Contain(args) => contain(&args),
    }
}

/// Runs `longhaul demo`: the scenario `demo`.
///
/// # Errors
/// A program or right that this machine lacks, or a failed run or check.
pub fn run_demo(args: DemoArgs) -> Result<()> {
    let duration = match (args.quick, args.set.is_empty()) {
        (true, true) => ": a minute",
        (false, true) => ": two to three minutes",
        // Other parameters take other times.
        (_, false) => "",
    };
    let choices = Choices {
        quick: args.quick,
        set: args.set,
        ..Choices::default()
    };
    let request = Request {
        choices,
        simulate: false,
        out: args.out,
        restart: false,
        json: false,
    };
    let mut prepared = PreparedExperiment::read("demo", &request)?;
    prepared.create_directory()?;
    announce(&prepared, duration);
    let outcome = prepared.execute();
    command_check::end();
    exit_with(outcome?)
}

/// Says what the demo is about to do, and how long it takes if that is known.
fn announce(prepared: &PreparedExperiment, duration: &str) {
    let downloads = prepared.experiment.cells.len();
    errln!(
        "{downloads} downloads by curl from nginx, over an emulated path of 10 Gbit/s and 26 ms in \
         namespaces of its own{duration}."
    );
    errln!("Report: {}", prepared.out.join("report.html").display());
}

/// Runs a command contained, writes its report, and exits with its code.
fn contain(args: &args::ContainArgs) -> Result<()> {
    let (program, words) = args.words.split_first().context("there is no command")?;
    let mut command = process::Command::new(program);
    command.args(words);
    let write_report =
        |ended: &contained::ExitReport| fs::write(&args.report, serde_json::to_vec(ended)?);
    let code =
        contained::run(&mut command, write_report).map_err(|error| run::unsupported(&error))?;
    process::exit(code.into())
}

/// Lists all built-in scenarios, and notes those that this user cannot run.
fn list() -> Result<()> {
    let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in file::names() {
        let experiment = ExperimentPlan::open(file::find(name)?, &Choices::default())?;
        outln!("{name}\t{}", experiment.scenario.title);
        if let Err(error) = run::check_permissions(&experiment) {
            lacking.entry(error.to_string()).or_default().push(name);
        }
    }
    for (reason, names) in lacking {
        errln!(
            "Not permitted for this user, except with --simulate: {} ({reason})",
            names.join(", ")
        );
    }
    Ok(())
}

fn show(scenario: &str) -> Result<()> {
    outln!("{}", file::find(scenario)?.text);
    Ok(())
}

fn check(scenario: &str) -> Result<()> {
    let mut experiment = ExperimentPlan::open(file::find(scenario)?, &Choices::default())?;
    run::validate(&experiment)?;
    outln!(
        "{}: {} cells, {} runs each",
        experiment.name,
        experiment.cells.len(),
        experiment.scenario.repetitions
    );
    run::skip_missing_commands(&mut experiment)?;
    run::check_prerequisites(&experiment).map(drop)
}

fn run_scenarios(args: args::RunArgs) -> Result<()> {
    let scenarios: Vec<String> = if args.all {
        file::names().map(str::to_owned).collect()
    } else {
        args.scenarios
    };
    let choices = Choices {
        quick: args.quick,
        set: args.set,
        filter: args.filter,
        repetitions: args.repetitions,
        seed: args.seed,
    };
    let request = Request {
        choices,
        simulate: args.simulate,
        out: args.out,
        restart: args.restart,
        json: args.json,
    };
    let code = match scenarios.as_slice() {
        [one] => PreparedExperiment::read(one, &request)?.execute()?,
        several => Batch::read(several, &request)?.execute()?,
    };
    exit_with(code)
}

/// Ends the program with the code of an experiment whose errors have been printed.
fn exit_with(code: u8) -> Result<()> {
    match code {
        0 => Ok(()),
        code => {
            command_check::end();
            process::exit(code.into())
        }
    }
}
