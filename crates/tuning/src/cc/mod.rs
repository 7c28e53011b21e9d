// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc`: loads congestion controls into the running kernel, and shows their connections.
//!
//! The crate `congestion` loads, pins and reads them.

mod args;
mod config;
mod default_setting;
mod list;
mod load;
mod output;
mod show;
mod unload;
mod watch;

pub use args::Args;

use anyhow::Result;
use config::Config;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match args.config()? {
        Config::List(config) => list::run(&config),
        Config::Load(config) => load::run(&config),
        Config::Unload(config) => unload::run(&config),
        Config::Show(config) => show::run(&config),
        Config::Watch(config) => watch::run(&config),
    }
}
