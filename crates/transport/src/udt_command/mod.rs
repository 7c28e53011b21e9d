// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul udt`: file transfers and throughput tests over UDT4, with another longhaul or any other program that
//! uses it.

mod args;
mod bench;
mod config;
mod port;
mod serve;
mod termination_signals;
mod time_series;
mod transfer;
mod transfer_stats;

pub use args::Args;

use anyhow::Result;
use config::Config;

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let config = args.config();
    let runtime = longhaul_command::event_loop::current_thread()?;
    runtime.block_on(async {
        match config {
            Config::Send(config) => transfer::send(&config).await,
            Config::Receive(config) => transfer::receive(&config).await,
            Config::Bench(config) => bench::run(&config).await,
            Config::Serve(config) => serve::run(&config).await,
        }
    })
}
