// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coordinator of a copy. With leases, workers copy the file data first. Then two endpoints copy everything that is left.

use super::{
    args::command::{Args, Command},
    config::Config,
    distributed, endpoint,
    progress::{monitor::CopyMonitor, record::Record},
    session::{follow::run_sessions, job::Job},
    verify, workers,
};
use crate::protocol::control::Task;
use anyhow::{Context as _, Result, bail};
use longhaul_command::{errln, exit::Refusal, outln, threads};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::time::Instant;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.exit_at_stdin_eof {
        threads::spawn(endpoint::reports::exit_at_stdin_eof)?;
    }
    match &args.command {
        Some(Command::Verify(args)) => verify::run(&args.dir, args.json),
        Some(Command::Jobs(args)) => workers::manage_jobs(args),
        None if args.endpoint => endpoint::process::run(args.access_scope),
        None => copy(&args.config()?),
    }
}

fn copy(config: &Config) -> Result<()> {
    let job = Job::new(config)?;
    print_on_interruption()?;
    let mut monitor = CopyMonitor::new(config, job.through_ssh(), Instant::now());
    if let Some(side) = config.distributed {
        return print_result(config, &distributed::run(&job, side, &mut monitor)?);
    }
    let copy_from_pair = |first: usize, monitor: &mut CopyMonitor| {
        run_sessions(
            &job,
            |number| job.pair(first + number),
            Task::Whole,
            monitor,
        )
    };
    match &config.leases {
        Some(address) => workers::copy_shared(&job, address, &mut monitor, copy_from_pair)?,
        None => copy_from_pair(0, &mut monitor)?,
    }
    print_result(config, &monitor.finish())
}

/// Makes SIGINT, SIGTERM and SIGHUP print a line on standard error before they end the process. The process still ends by
/// the signal, which its caller sees.
///
/// # Errors
/// Fails if no descriptor or thread is available.
fn print_on_interruption() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    threads::spawn(move || {
        for signal in signals.forever() {
            // The progress display leaves the cursor at the end of its last line.
            errln!("\nlonghaul: interrupted: what was copied stays, and the same command resumes");
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
    if let Some(why) = record.plan.as_ref().and_then(|plan| plan.refused.as_ref()) {
        return Err(Refusal::usage(format!(
            "nothing would be copied or removed: {why}"
        )));
    }
    match (record.failed, record.vanished) {
        (0, 0) => Ok(()),
        (0, vanished) => Err(Refusal::Vanished(format!(
            "{vanished} vanished at the source before they were read"
        ))
        .into()),
        (failed, _) => bail!("{failed} could not be copied"),
    }
}
