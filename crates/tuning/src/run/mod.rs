// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul run`: an unmodified program, with a profile on its TCP sockets.
//!
//! `profile` reads the flags, and `program` finds the executable. Then a cgroup is made for the program,
//! `attachments` act on that cgroup's sockets, and the program is supervised until its end (`host`).
//! Nothing remains: BPF programs depend on this process's descriptors. A cgroup that a killed run
//! left is removed by the next one, or by `longhaul doctor --clean`.

mod args;
mod attachments;
mod profile;
mod program;
mod record;
mod send_buffers;

use anyhow::{Context, Result};
pub use args::Args;
use attachments::Attachments;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{Error, loader, pins::Pins};
use longhaul_linux::{
    ack_pacing,
    supervise::{self, BlockedSignals},
    transient_cgroup::{self, StaleCgroup, TransientCgroup},
};
use profile::ProgramConfig;
use program::Program;
use record::Record;
use send_buffers::SendBuffers;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Instant,
};

/// Prefix of the cgroups' names.
pub(crate) const PREFIX: &str = "longhaul-run";

/// Runs the command; the exit code is the program's.
pub fn run(args: &Args) -> Result<ExitCode> {
    let config = ProgramConfig::new(args)?;
    let program = Program::new(&args.command, args.user.as_deref())?;
    let output = args.json.as_deref().map(open_output).transpose()?;
    longhaul_congestion::sockets::profile::permitted().map_err(Error::refusal)?;
    let record = supervise(&config, &program)?;
    print_result(&record, args.verbose);
    if let Some(output) = output {
        write_record(&record, output).context("cannot write the record")?;
    }
    Ok(ExitCode::from(record.exit_code))
}

fn supervise(config: &ProgramConfig, program: &Program) -> Result<Record> {
    // Leftovers that can't be removed now stay until the next run, or until doctor --clean, which prints the reason.
    let _ = remove_leftovers();
    let signals = BlockedSignals::block()?;
    let cgroup = TransientCgroup::create(PREFIX).map_err(cgroup_refusal)?;
    let (attachments, running) = start(config, program, &cgroup, &signals).map_err(as_refusal)?;
    let started_at = Instant::now();
    let send_buffers = attachments.send_buffers();
    send_buffers.inspect(|buffers| buffers.watch());
    let pid = running.id();
    let status = running.wait()?;
    Ok(Record {
        program: program.name(),
        pid,
        exit_code: supervise::exit_code(status),
        seconds: started_at.elapsed().as_secs_f64(),
        congestion_control: config.profile.congestion_control.clone(),
        sockets_without_gso: attachments.sockets_without_gso(),
        acks: attachments.acks()?,
        largest_send_buffer: send_buffers.and_then(SendBuffers::largest),
        send_buffer_error: send_buffers.and_then(SendBuffers::error),
        counts: attachments.counts()?,
    })
}

fn start<'a>(
    config: &ProgramConfig,
    program: &Program,
    cgroup: &TransientCgroup,
    signals: &'a BlockedSignals,
) -> Result<(Attachments, supervise::Program<'a>)> {
    let attachments = Attachments::new(config, cgroup)?;
    let mut command = program.command();
    let procs = cgroup.open_procs()?;
    let account = program.account.as_ref();
    let started = supervise::Program::start(&mut command, procs, account, signals);
    let running = started.with_context(|| format!("cannot start {}", program.name()))?;
    Ok((attachments, running))
}

/// Turns errors before the program's start into refusals: an exit code of 1 would look like the program's.
fn as_refusal(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Refusal>() {
        error
    } else {
        Refusal::unsupported(format!("{error:#}"))
    }
}

/// Returns the refusal for an error of creating a cgroup.
pub(crate) fn cgroup_refusal(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::unsupported(format!(
            "no cgroup2 can be reached ({error}): mount one, or start longhaul outside containers \
             that hide it"
        )),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Refusal::unsupported(format!(
                "a cgroup can't be created below this process's ({error}): run it with sudo, where \
                 cgroup2 is writable"
            ))
        }
        _ => anyhow::Error::from(error).context("cannot create a cgroup"),
    }
}

/// Opens the record's file: before the program starts, so that a bad name is refused.
fn open_output(path: &Path) -> Result<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stderr()));
    }
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Refusal::usage(format!(
            "--json {}: {error}",
            path.display()
        ))),
    }
}

fn write_record(record: &Record, mut output: Box<dyn Write>) -> Result<()> {
    writeln!(output, "{}", serde_json::to_string(record)?)?;
    Ok(())
}

/// Prints the summary if `verbose`, and refused settings always.
fn print_result(record: &Record, verbose: bool) {
    for refusal in record.refusals() {
        errln!("longhaul: {refusal}");
    }
    if verbose {
        errln!("longhaul: {}", record.summary());
    }
}

/// Removes leftovers of killed runs: cgroups beside this process's, congestion controls that were
/// loaded for them, and the pacing of ACKs. Returns messages about each.
pub(crate) fn clean() -> Vec<String> {
    let mut messages = remove_leftovers();
    match ack_pacing::remove_stale() {
        Ok(devices) => messages.extend(devices.into_iter().map(|device| {
            format!(
                "{device} has its previous queueing discipline again: no process paces ACKs there"
            )
        })),
        Err(error) => messages.push(format!("cannot search for ACK pacing: {error}")),
    }
    messages
}

/// Removes all leftovers but the pacing, which the next run that paces on the same interface removes.
fn remove_leftovers() -> Vec<String> {
    let mut messages = clean_cgroups();
    match loader::clean(&Pins::default()) {
        Ok(names) => messages.extend(
            names
                .into_iter()
                .map(|name| format!("{name} unloaded: no process holds it")),
        ),
        Err(error) => messages.push(format!("cannot search for congestion controls: {error}")),
    }
    messages
}

fn clean_cgroups() -> Vec<String> {
    let leftovers = match transient_cgroup::remove_stale(PREFIX) {
        Ok(leftovers) => leftovers,
        Err(error) => return vec![format!("cannot search for cgroups of runs: {error}")],
    };
    let messages = leftovers.into_iter().map(|leftover| match leftover {
        StaleCgroup::Removed(name) => format!("cgroup {name} removed: its longhaul run has ended"),
        StaleCgroup::Busy(name, count) => {
            format!("cgroup {name} stays: {count} processes of a killed longhaul run are in it")
        }
    });
    messages.collect()
}
