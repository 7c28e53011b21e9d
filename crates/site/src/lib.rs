// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site`: directories for others to copy from and into, over TLS 1.3, with a token and without ssh.
//!
//! A site listens (`daemon`), lets in who has a token (`visit`), and starts an end of `longhaul copy` for each,
//! confined to the directory that was asked for (`Confinement`); from then on it passes bytes on
//! (`bridge`). `longhaul_transfer` is that end, and the copy that comes in. The same directories are there for HTTP clients
//! (`http`), and copied on to other sites (`mirror`).
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     site: longhaul_site::Args,
//! }
//!
//! let cli = Cli::parse_from(["site", "--export", "data=/srv/data"]);
//! longhaul_site::run(&cli.site).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod account;
mod args;
mod bridge;
mod config;
mod daemon;
mod exports;
mod http;
mod keys;
mod lines;
mod listener;
mod mirror;
mod record;
mod visit;

pub use args::Args;
pub use http::request::xml;

use anyhow::Result;
use args::{Command, LockCommand, TokenCommand};
use http::locks;
use keys::{state::State, tokens};

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Token(token)) => {
            let state = State::find(args.state.as_deref())?;
            match token {
                TokenCommand::New {
                    name,
                    export,
                    read_only,
                } => tokens::make(&state, name, export, *read_only),
                TokenCommand::List => tokens::list(&state),
                TokenCommand::Remove { name } => tokens::remove(&state, name),
            }
        }
        Some(Command::Lock(lock)) => {
            let state = State::find(args.state.as_deref())?;
            match lock {
                LockCommand::List => locks::list(&state),
                LockCommand::Remove { lock } => locks::remove(&state, lock),
            }
        }
        None => {
            let config = args.config()?;
            let outcome = match args.serve() {
                Some(scheme) => http::process::run(config, scheme),
                None => daemon::run(config),
            };
            lines::flush();
            outcome
        }
    }
}
