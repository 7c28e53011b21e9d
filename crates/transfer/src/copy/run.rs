// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command line asks for, given to who does it.

use super::{
    args::{Args, Command},
    driver, end, movers, threads, verify,
};

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.attended {
        threads::begin(end::reports::end_with_standard_input)?;
    }
    match &args.command {
        Some(Command::Verify(args)) => verify::run(args),
        Some(Command::Jobs(args)) => movers::jobs::run(args),
        None if args.end => end::process::run(args.confined),
        None => driver::run(args),
    }
}
