// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul`: moves data fast over long fat networks. One binary, with a subcommand for each job.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "lab")]
mod check;
mod generate;
mod help;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use longhaul_command::{
    console,
    exit::{self, Refusal},
    logging, manual,
};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "longhaul", version = env!("LONGHAUL_VERSION"), about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: logging::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Emulate a long path between two interfaces or network namespaces
    #[cfg(feature = "link")]
    Link(Box<longhaul_link::Args>),
    /// Split TCP connections into shorter ones (legs), each with TCP settings of its own
    Relay(Box<longhaul_relay::Args>),
    /// Copy files over many connections at once; resumable after any failure
    #[cfg(feature = "copy")]
    Copy(Box<longhaul_copy::copy::Args>),
    /// Serve directories to longhaul copy on other hosts, and over HTTP and WebDAV
    #[cfg(feature = "copy")]
    Site(Box<longhaul_site::Args>),
    /// List, load, watch and unload congestion controls
    #[cfg(feature = "tune")]
    Cc(longhaul_tuning::cc::Args),
    /// Measure one-way delay and loss between two namespaces of this machine
    #[cfg(feature = "link")]
    Probe(longhaul_probe::Args),
    /// Balance parallel connections: cap the fast ones, so that the slow ones catch up
    #[cfg(feature = "tune")]
    Decp(longhaul_tuning::decp::Args),
    /// Check this host for what limits throughput on a long fat network
    #[cfg(feature = "tune")]
    Doctor(longhaul_tuning::doctor::Args),
    /// Predict throughput, choose sites for relays, and measure paths
    #[cfg(feature = "plan")]
    Plan(longhaul_plan::Args),
    /// Run a program with TCP settings of its own: congestion control, pacing, window cap
    #[cfg(feature = "tune")]
    Run(Box<longhaul_tuning::run::Args>),
    /// Capture packet headers, and report what limited each TCP flow and its ACK stream
    #[cfg(feature = "tap")]
    Tap(Box<longhaul_tap::Args>),
    /// Send, receive and measure over UDT4, a reliable protocol on UDP
    Udt(Box<longhaul_transport::udt_command::Args>),
    /// Run experiments on an emulated testbed and report on them
    #[cfg(feature = "lab")]
    Lab(longhaul_lab::Args),
    /// Show on this machine when relays help: the main experiment on real traffic, with a report
    #[cfg(feature = "lab")]
    Demo(longhaul_lab::DemoArgs),
    /// Check the commands of a lab
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    Check,
    /// Write man pages and shell completions
    Generate(generate::Args),
}

fn main() -> ExitCode {
    longhaul_command::set_version(env!("LONGHAUL_VERSION"));
    let cli = parse_args();
    logging::start(&cli.log);
    let outcome = match cli.command {
        #[cfg(feature = "link")]
        Command::Link(args) => longhaul_link::run(*args),
        Command::Relay(args) => longhaul_relay::run(&args),
        #[cfg(feature = "copy")]
        Command::Copy(args) => longhaul_copy::copy::run(&args),
        #[cfg(feature = "copy")]
        Command::Site(args) => longhaul_site::run(&args),
        #[cfg(feature = "tune")]
        Command::Cc(args) => longhaul_tuning::cc::run(&args),
        #[cfg(feature = "link")]
        Command::Probe(args) => longhaul_probe::run(&args),
        #[cfg(feature = "tune")]
        Command::Decp(args) => longhaul_tuning::decp::run(&args),
        #[cfg(feature = "tune")]
        Command::Doctor(args) => longhaul_tuning::doctor::run(&args),
        #[cfg(feature = "plan")]
        Command::Plan(args) => longhaul_plan::run(args),
        #[cfg(feature = "tune")]
        Command::Run(args) => match longhaul_tuning::run::run(&args) {
            Ok(code) => {
                logging::flush();
                return code;
            }
            Err(error) => Err(error),
        },
        #[cfg(feature = "tap")]
        Command::Tap(args) => longhaul_tap::run(&args),
        Command::Udt(args) => longhaul_transport::udt_command::run(*args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => longhaul_lab::run(args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => longhaul_lab::run_demo(args),
        #[cfg(feature = "lab")]
        Command::Check => check::run(),
        Command::Generate(args) => generate::run(args, Cli::command()),
    };
    logging::flush();
    ExitCode::from(exit::report_outcome(&console::check_output(outcome)))
}

/// Parses the command line, or prints the error and exits.
fn parse_args() -> Cli {
    let command = help::complete(Cli::command(), &manual::directory());
    let matches = command.try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.unwrap_or_else(|error| {
        if let Some(name) = help::left_out(&Cli::command(), &error) {
            let refusal = Refusal::unsupported(format!(
                "this program was built without `{name}`; packages have it"
            ));
            std::process::exit(exit::report_outcome(&Err(refusal)).into());
        }
        error.exit()
    })
}
