// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site`: directories for others to copy from and into, over TLS 1.3, with a token and without ssh.
//!
//! A site listens (`daemon`), lets in who has a token (`visit`), and starts an end of `longhaul copy` for each,
//! confined to the directory that was asked for (`copy::Confinement`); from then on it passes bytes on
//! (`bridge`). `longhaul copy` comes in by `client`. The same directories are there for HTTP clients (`http`),
//! and copied on to other sites (`mirror`).

mod account;
mod args;
mod bridge;
mod certificate;
mod config;
mod daemon;
mod door;
mod http;
mod identity;
mod lines;
mod mirror;
mod news;
mod record;
mod refusals;
mod state;
mod stop;
mod token_command;
mod tokens;
mod vestibule;
mod visit;

pub use args::Args;
pub use http::xml;

use args::Command;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Some(Command::Token(command)) => token_command::run(command, args.state.as_deref()),
        None => {
            let config = config::Config::read(args)?;
            let outcome = match args.serve {
                Some(scheme) => http::run(config, scheme),
                None => daemon::run(config),
            };
            lines::flush();
            outcome
        }
    }
}
