// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul udt`: files and memory over UDT4, to another longhaul, or any other program that speaks it.

mod args;
mod bench;
mod course;
mod figures;
mod port;
mod serve;
mod transfer;

pub use args::Args;
use args::Command;

use anyhow::Result;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let runtime = longhaul_command::event_loop::of_this_thread()?;
    runtime.block_on(async {
        match &args.command {
            Command::Send(args) => transfer::send(args).await,
            Command::Receive(args) => transfer::receive(args).await,
            Command::Bench(args) => match &args.to {
                Some(to) => bench::run(args, to).await,
                None => serve::run(args).await,
            },
        }
    })
}
