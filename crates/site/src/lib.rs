// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site`: directories that others copy from and into over TLS 1.3, with a token and without ssh.
//!
//! A site listens (`daemon`), authenticates clients by their token (`session`), and starts an endpoint of `longhaul
//! copy` for each. The endpoint is confined to the requested export (`ExportScope`), and the site forwards its bytes
//! (`bridge`). `longhaul_copy` implements the endpoint. HTTP clients can access the same exports (`http`), and
//! other sites receive copies of them (`mirror`).
//!
//! # Tour
//!
//! | folder or file | subject |
//! |---|---|
//! | `args.rs`, `config.rs`, `exports.rs` | the command line, the checked configuration, checks of exports on the file system |
//! | `keys` | the site's key, and the tokens that it has issued (hashes only) |
//! | `listener` | accepted connections, limits on clients that are not authenticated, the log of refused ones |
//! | `session.rs`, `bridge.rs`, `transcript.rs` | a client's copy: authentication, the confined endpoint, its record |
//! | `http_args.rs`, `http` | WebDAV: one process for each listener, which the site supervises |
//! | `http/dav.rs`, `http/request` | a request: its method, its target, its conditional headers, its XML |
//! | `http/dav_request.rs`, `http/locks.rs` | what must hold for a request: rights, conditions, locks |
//! | `http/get.rs`, `http/put.rs`, `http/replacement.rs` | downloads; uploads; DELETE, COPY and MOVE |
//! | `http/claims.rs` | changes to the same tree, which run one after the other |
//! | `http/export` | the files of an export, and none outside it |
//! | `mirror.rs`, `export_identity.rs` | copies of exports on other sites; whether an export is still the same directory |
//! | `record.rs`, `record_writer.rs` | events as log lines or as JSON |
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

mod args;
mod bridge;
mod config;
mod daemon;
mod export_identity;
mod export_mounts;
mod exports;
mod http;
mod http_args;
mod keys;
mod listener;
mod mirror;
mod record;
mod record_writer;
mod session;
mod transcript;

pub use args::Args;
pub use http::request::xml;

use anyhow::Result;
use args::{Command, TokenCommand};
use keys::{state::StateDir, tokens};
use longhaul_command::errln;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Token(token)) => {
            let state = StateDir::find(args.state.as_deref())?;
            match token {
                TokenCommand::New {
                    name,
                    export,
                    read_only,
                } => {
                    let is_new = args.state.is_none() && !state.directory().exists();
                    tokens::create(&state, name, export, *read_only)?;
                    if is_new {
                        errln!(
                            "longhaul: this token is for a new site with the state directory {state}; a service has \
                             another directory (--state)"
                        );
                    }
                    Ok(())
                }
                TokenCommand::List => tokens::list(&state),
                TokenCommand::Remove { name } => tokens::remove(&state, name),
            }
        }
        Some(Command::Lock(lock)) => {
            http::locks::run(&StateDir::find(args.state.as_deref())?, lock)
        }
        None => {
            let config = args.config()?;
            let outcome = match args.http.serve {
                Some(scheme) => http::process::run(config, scheme),
                None => daemon::run(config),
            };
            record_writer::flush();
            outcome
        }
    }
}
