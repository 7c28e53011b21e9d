// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implementation of `longhaul link`: emulates a long path between two interfaces, in user space.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod arrival_clock;
mod capture;
mod config;
mod control;
mod counters;
mod display;
mod forwarding;
mod link;
mod packet_ring;
mod run;

pub use args::Args;
use args::{Command, DirectionArg};

/// Runs `longhaul link`.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => run::run(&args.start.config()?),
        Some(Command::Set {
            name,
            key,
            value,
            direction,
        }) => control::set(&name, key, value, direction.map(DirectionArg::direction)),
        Some(Command::Show { name, json }) => control::show(name.as_deref(), json),
    }
}

/// Checks arguments as the command would, without creating a link.
///
/// # Errors
/// Exit code 2: a [`longhaul_command::exit::Refusal`] with the option.
pub fn check(args: &Args) -> anyhow::Result<()> {
    args.start.config().map(drop)
}
