// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc`: brings congestion controls to the running kernel, shows them at work, and runs them
//! under simulated time.
//!
//! The crate `bpf` loads, pins and reads; here is what is asked for and how it is told.

mod default_setting;
mod list;
mod load;
mod matching;
mod show;
pub(crate) mod simulate;
mod unload;
mod watch;

use anyhow::Result;
use clap::Subcommand;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{Kind, pins::Pins};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  longhaul cc list
      what this kernel has, what longhaul can bring
  sudo longhaul cc load bic
      every program may choose lh_bic now (TCP_CONGESTION, iperf3 -C lh_bic)
  sudo longhaul cc load bic --param ack_shift=3
      with a parameter; longhaul cc show bic names them all
  sudo longhaul cc watch
      window, rate and the algorithm's own state of each of its connections
  sudo longhaul cc unload bic
      connections that use it keep it until they close

docs/cc.md is the manual, docs/congestion-controls.md explains each of them.";

/// Arguments of `longhaul cc`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List congestion controls: the kernel's and those of longhaul
    List(list::Args),
    /// Bring a congestion control to this kernel, for all its programs and namespaces
    Load(load::Args),
    /// Take one away again; connections that use it go on with it
    Unload(unload::Args),
    /// Show one: its parameters, its state, its programs
    Show(show::Args),
    /// Watch the connections that use longhaul's congestion controls
    Watch(watch::Args),
    /// Simulate flows over a shared path: hours at 100 Gbit/s in minutes
    Simulate(Box<simulate::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Load(args) => load::run(args),
        Command::Unload(args) => unload::run(args),
        Command::Show(args) => show::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Simulate(args) => simulate::run(args),
    }
}

/// Where loaded congestion controls are kept.
#[derive(Debug, clap::Args)]
struct Place {
    /// BPF file system that keeps what is loaded; mounted if it is not
    #[arg(long, value_name = "DIR", default_value = longhaul_congestion::pins::DEFAULT)]
    bpffs: PathBuf,
}

impl Place {
    fn pins(&self) -> Pins {
        Pins::at(&self.bpffs)
    }
}

/// The exit code is that of the error's kind.
fn refusal(error: longhaul_congestion::Error) -> anyhow::Error {
    match error.kind() {
        Kind::Usage => Refusal::usage(error),
        Kind::Unsupported => Refusal::unsupported(error),
        Kind::Failed => error.into(),
    }
}

/// Writes to standard output; nobody reading it is no error.
fn say(text: &str) -> Result<()> {
    use std::io::{ErrorKind, Write, stdout};
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => Ok(outcome?),
    }
}

/// `3 connections`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A table with aligned columns.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let width = |at| width(at).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}
