// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link`: a long path between two interfaces, in user space.

mod args;
mod config;
mod control;
mod counters;
mod display;
mod pump;
mod run;
mod store;

pub(crate) use args::Args;
use args::Command;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => run::run(&args.start),
        Some(Command::Set {
            name,
            key,
            value,
            direction,
        }) => control::set(&name, key, value, direction),
        Some(Command::Show { name }) => control::show(&name),
    }
}
