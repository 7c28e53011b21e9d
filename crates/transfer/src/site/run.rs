// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command line asks for, given to who does it.

use super::{
    args::{Args, Command, TokenCommand},
    daemon, http,
    keys::{state::State, tokens},
    lines,
};
use anyhow::Result;

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
