// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab`: experiments on an emulated testbed or under simulated time, and reports on them.
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
mod measure;
mod network;
pub mod paths;
mod run;
mod scenario;
mod simulated;
mod source;
mod testbed;
#[cfg(test)]
mod tests;
mod verdict;

pub use args::Args;
pub use scenario::expression;

use anyhow::{Context, Result};
use args::Command;
use longhaul_command::{errln, outln};
use longhaul_linux::contained;
use run::{Batch, Ready, Request};
use source::{Book, Choices, inherit, library};
use std::{collections::BTreeMap, fs, process};

/// Runs `longhaul lab`.
///
/// # Errors A usage error, a machine that lacks what the scenario needs, or a failed run or check.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Run(args) => run_scenarios(args),
        Command::List => list(),
        Command::Show(show) => match show.resolved {
            true => show_resolved(&show.scenario),
            false => self::show(&show.scenario),
        },
        Command::Check(named) => check(&named.scenario),
        Command::Compare(args) => longhaul_results::compare::run(&args.into()),
        Command::Report(rebuild) => {
            for page in
                longhaul_results::report::pages(&rebuild.directories, rebuild.index.as_deref())?
            {
                outln!("{}", page.display());
            }
            Ok(())
        }
        Command::Contain(args) => contain(&args),
    }
}

/// Runs a command contained, writes its report, and exits with its code.
fn contain(args: &args::Contain) -> Result<()> {
    let (program, words) = args.words.split_first().context("there is no command")?;
    let mut command = process::Command::new(program);
    command.args(words);
    let tell = |ended: &contained::Ended| fs::write(&args.report, serde_json::to_vec(ended)?);
    let code = contained::run(&mut command, tell).map_err(|error| run::unsupported(&error))?;
    process::exit(code.into())
}

/// Lists all built-in scenarios, and notes those that this user cannot run.
fn list() -> Result<()> {
    let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in library::names() {
        let book = Book::open(&library::find(name)?, &Choices::default())?;
        outln!("{name}\t{}", book.base.title);
        if let Err(error) = run::rights(&book) {
            lacking.entry(error.to_string()).or_default().push(name);
        }
    }
    for (reason, names) in lacking {
        errln!(
            "Not for this user, unless with --simulate: {} ({reason})",
            names.join(", ")
        );
    }
    Ok(())
}

fn show(scenario: &str) -> Result<()> {
    outln!("{}", library::find(scenario)?.text);
    Ok(())
}

/// Prints the scenario merged with all its bases.
fn show_resolved(scenario: &str) -> Result<()> {
    let source = library::find(scenario)?;
    Book::open(&source, &Choices::default())?;
    outln!("{}", inherit::Family::gather(&source)?.resolved()?);
    Ok(())
}

fn check(scenario: &str) -> Result<()> {
    let mut book = Book::open(&library::find(scenario)?, &Choices::default())?;
    run::possible(&book)?;
    outln!(
        "{}: {} cells, {} runs each",
        book.name,
        book.cells.len(),
        book.base.repetitions
    );
    run::leave_out(&mut book)?;
    run::prerequisites(&book).map(drop)
}

fn run_scenarios(args: args::Run) -> Result<()> {
    let scenarios: Vec<String> = match args.all {
        true => library::names().map(str::to_owned).collect(),
        false => args.scenarios,
    };
    let choices = Choices {
        quick: args.quick,
        set: args.set,
        only: args.only,
        repetitions: args.repetitions,
        seed: args.seed,
    };
    let request = Request {
        choices,
        simulate: args.simulate,
        out: args.out,
        fresh: args.fresh,
        json: args.json,
    };
    let code = match scenarios.as_slice() {
        [one] => Ready::read(one, &request)?.perform()?,
        several => Batch::read(several, &request)?.perform()?,
    };
    match code {
        0 => Ok(()),
        code => process::exit(code.into()),
    }
}
