// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul`: moves data fast over long fat networks. One binary, one subcommand a job.

mod admin;
mod cc;
#[cfg(test)]
mod corpus;
mod doctor;
mod exit;
mod lab;
mod link;
mod probe;
mod relay;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "longhaul", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Emulate a long path between two interfaces or network namespaces
    Link(Box<link::Args>),
    /// Relay TCP connections in legs, each with the TCP that suits it
    Relay(Box<relay::Args>),
    /// Congestion controls: simulate them
    Cc(cc::Args),
    /// Measure one-way delay and loss between two namespaces of this machine
    Probe(probe::Args),
    /// Check this host for what limits throughput on a long fat network
    Doctor(doctor::Args),
    /// Run experiments on an emulated testbed and report on them
    Lab(lab::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Link(args) => link::run(*args),
        Command::Relay(args) => relay::run(&args),
        Command::Cc(args) => cc::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Lab(args) => lab::run(args),
    };
    exit::code(&outcome)
}
