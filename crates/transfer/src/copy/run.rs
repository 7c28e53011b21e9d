// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that was called: it lets movers share the bulk if it is asked to, and then has two ends copy whatever is left.

use super::{
    args::command::{Args, Command},
    config::Config,
    distributed, endpoint, movers,
    progress::{monitor::CopyMonitor, record::Record},
    session::{follow::run_sessions, job::Job},
    verify,
};
use crate::protocol::control::Task;
use anyhow::{Context as _, Result, bail};
use longhaul_command::{errln, outln, threads};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::time::Instant;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.attended {
        threads::spawn(endpoint::reports::end_with_standard_input)?;
    }
    match &args.command {
        Some(Command::Verify(args)) => verify::run(&args.dir, args.json),
        Some(Command::Jobs(args)) => {
            movers::jobs::run(&args.leases, args.forget.as_deref(), args.json)
        }
        None if args.end => endpoint::process::run(args.confined),
        None => copy(&args.config()?),
    }
}

fn copy(config: &Config) -> Result<()> {
    let job = Job::new(config)?;
    print_on_interruption()?;
    let mut hearing = CopyMonitor::new(config, Instant::now());
    if let Some(side) = config.distributed {
        return print_result(config, &distributed::run(&job, side, &mut hearing)?);
    }
    let shared = match &config.leases {
        Some(address) => Some(movers::run::run(&job, address, &mut hearing)?),
        None => None,
    };
    let first = shared.as_ref().map_or(0, |shared| shared.last_pair);
    let pair = |number| job.pair(first + number);
    run_sessions(&job, pair, Task::Whole, &mut hearing)?;
    if let Some(shared) = shared {
        shared.remove();
    }
    print_result(config, &hearing.finish())
}

/// From now on SIGINT, SIGTERM and SIGHUP print a line on standard error before they end the process, as they would
/// without it: the caller sees the signal.
///
/// # Errors
/// No descriptors or threads are left.
fn print_on_interruption() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    threads::spawn(move || {
        for signal in signals.forever() {
            // The progress display leaves the cursor behind its last line.
            errln!(
                "\nlonghaul: interrupted: what has arrived stays, and the same command copies the rest"
            );
            let _ended = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

fn print_result(config: &Config, record: &Record) -> Result<()> {
    match (config.json, config.quiet) {
        (true, _) => outln!("{}", serde_json::to_string(record)?),
        (false, false) => outln!("{record}"),
        (false, true) => {}
    }
    match record.failed {
        0 => Ok(()),
        failed => bail!("{failed} could not be copied"),
    }
}
