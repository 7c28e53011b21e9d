// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul run`: a program that knows nothing of it, with a profile on its TCP sockets.
//!
//! `profile` reads flags, `program` finds what shall run; then a cgroup is made for it,
//! `attachments` work on that cgroup's sockets, and the program is attended until its end (`host`).
//! Nothing stays: BPF programs hang on this process's descriptors, and a cgroup that a killed run
//! left is removed by the next one, or by `longhaul doctor --clean`.

mod args;
mod attachments;
mod profile;
mod program;
mod record;

use anyhow::{Context, Result};
pub use args::Args;
use attachments::Attachments;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{Error, loader, pins::Pins};
use longhaul_linux::{
    ack_pacing,
    supervise::{self, Signals},
    transient_cgroup::{self, StaleCgroup, TransientCgroup},
};
use profile::Wanted;
use program::Program;
use record::Record;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Instant,
};

/// Names of cgroups begin so.
pub(crate) const PREFIX: &str = "longhaul-run";

/// Runs the command; the exit code is the program's.
pub fn run(args: &Args) -> Result<ExitCode> {
    let wanted = Wanted::new(args)?;
    let program = Program::new(&args.command, args.user.as_deref())?;
    let output = args.json.as_deref().map(output).transpose()?;
    longhaul_congestion::sockets::profile::permitted().map_err(Error::refusal)?;
    let record = attend(&wanted, &program)?;
    tell(&record, args.verbose);
    if let Some(output) = output {
        write_record(&record, output).context("cannot write the record")?;
    }
    Ok(ExitCode::from(record.exit_code))
}

fn attend(wanted: &Wanted, program: &Program) -> Result<Record> {
    // What can't be removed now is for the next one, or for doctor, which says why.
    let _ = sweep();
    let signals = Signals::block()?;
    let cgroup = TransientCgroup::create(PREFIX).map_err(without_cgroup)?;
    let (attachments, running) =
        start(wanted, program, &cgroup, &signals).map_err(before_program)?;
    let began = Instant::now();
    let pid = running.id();
    let status = running.wait()?;
    Ok(Record {
        program: program.name(),
        pid,
        exit_code: supervise::exit_code(status),
        seconds: began.elapsed().as_secs_f64(),
        congestion_control: wanted.profile.congestion_control.clone(),
        single_segment_sockets: attachments.single_segment_sockets(),
        acks: attachments.acks(),
        counts: attachments.counts()?,
    })
}

fn start<'a>(
    wanted: &Wanted,
    program: &Program,
    cgroup: &TransientCgroup,
    signals: &'a Signals,
) -> Result<(Attachments, supervise::Program<'a>)> {
    let attachments = Attachments::new(wanted, cgroup)?;
    let mut command = program.command();
    let entrance = cgroup.open_procs()?;
    let account = program.account.as_ref();
    let started = supervise::Program::start(&mut command, entrance, account, signals);
    let running = started.with_context(|| format!("cannot start {}", program.name()))?;
    Ok((attachments, running))
}

/// An exit code of 1 would be the program's, which does not run.
fn before_program(error: anyhow::Error) -> anyhow::Error {
    match error.is::<Refusal>() {
        true => error,
        false => Refusal::unsupported(format!("{error:#}")),
    }
}

/// Why there is no cgroup for a program, as the end of the command.
pub(crate) fn without_cgroup(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::unsupported(format!(
            "no cgroup2 can be reached ({error}): mount one, or start longhaul outside containers \
             that hide it"
        )),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Refusal::unsupported(format!(
                "a cgroup can't be made below this process's ({error}): run it with sudo, where \
                 cgroup2 is writable"
            ))
        }
        _ => anyhow::Error::from(error).context("cannot make a cgroup"),
    }
}

/// Opened before the program starts, so that a bad name is refused.
fn output(path: &Path) -> Result<Box<dyn Write>> {
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

/// What sockets went without is said in any case.
fn tell(record: &Record, verbose: bool) {
    for complaint in record.complaints() {
        errln!("longhaul: {complaint}");
    }
    if verbose {
        errln!("longhaul: {}", record.summary());
    }
}

/// Removes what killed runs left: cgroups beside this process's, and congestion controls that were
/// loaded for them, and the pacing of ACKs. Says what it did and did not do.
pub(crate) fn clean() -> Vec<String> {
    let mut said = sweep();
    match ack_pacing::remove_stale() {
        Ok(devices) => said.extend(devices.into_iter().map(|device| {
            format!("{device} has its queueing discipline back: nobody paces ACKs there")
        })),
        Err(error) => said.push(format!("no pacing of ACKs was looked for: {error}")),
    }
    said
}

/// All but the pacing, which the next run that paces by the same interface removes.
fn sweep() -> Vec<String> {
    let mut said = clean_cgroups();
    match loader::clean(&Pins::default()) {
        Ok(names) => said.extend(
            names
                .into_iter()
                .map(|name| format!("{name} unloaded: nobody holds it")),
        ),
        Err(error) => said.push(format!("no congestion controls were looked for: {error}")),
    }
    said
}

fn clean_cgroups() -> Vec<String> {
    let swept = match transient_cgroup::remove_stale(PREFIX) {
        Ok(swept) => swept,
        Err(error) => return vec![format!("no run's cgroups were looked for: {error}")],
    };
    let said = swept.into_iter().map(|swept| match swept {
        StaleCgroup::Removed(name) => format!("cgroup {name} removed: its longhaul run has ended"),
        StaleCgroup::Busy(name, count) => {
            format!("cgroup {name} stays: {count} processes of a killed longhaul run are in it")
        }
    });
    said.collect()
}
