// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab`: experiments on an emulated testbed, and reports on them.

mod account;
mod args;
mod board;
mod book;
pub(crate) mod compare;
mod controls;
mod course;
mod drawing;
#[cfg(test)]
mod every_refusal;
#[cfg(test)]
mod every_scenario;
pub(crate) mod expression;
mod fault;
mod finding;
mod flow_samples;
mod flows;
mod inherit;
mod keys;
mod known;
mod library;
mod machine;
mod matching;
mod measure;
pub(crate) mod metric;
mod paper;
mod parameters;
pub(crate) mod paths;
mod payload;
mod programs;
mod progress;
mod range;
mod raw;
pub(crate) mod report;
pub(crate) mod result;
mod resume;
mod run;
mod sampler;
mod scenario;
mod sending;
mod simulated;
pub(crate) mod summary;
pub(crate) mod table;
mod taps;
mod testbed;
mod topology;
mod twins;
mod validate;
mod verdict;
pub(crate) mod view;
mod view_plan;

pub(crate) use args::Args;

use crate::exit::{self, Refusal};
use anyhow::{Context, Result, bail};
use args::Command;
use book::{Book, Choices};
use host::sandbox;
use result::{Host, LabResult};
use resume::{Identity, Journal};
use scenario::{LinkKind, Program, RelayProgram};
use std::{fs, path::Path};

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Run(args) => run_scenario(&args),
        Command::List => list(),
        Command::Show(show) => match show.resolved {
            true => show_resolved(&show.scenario),
            false => self::show(&show.scenario),
        },
        Command::Check(named) => check(&named.scenario),
        Command::Compare(args) => compare::run(&args),
        Command::Report(rebuild) => {
            for page in report::pages(&rebuild.directories, rebuild.index.as_deref())? {
                println!("{}", page.display());
            }
            Ok(())
        }
    }
}

fn list() -> Result<()> {
    for name in library::names() {
        let book = Book::open(&library::find(name)?, &Choices::default())?;
        println!("{name}\t{}", book.base.title);
    }
    Ok(())
}

fn show(scenario: &str) -> Result<()> {
    print!("{}", library::find(scenario)?.text);
    Ok(())
}

/// The scenario as it reads with all that it stands on, ranges spelt out.
fn show_resolved(scenario: &str) -> Result<()> {
    let source = library::find(scenario)?;
    Book::open(&source, &Choices::default())?;
    print!("{}", inherit::Family::gather(&source)?.resolved()?);
    Ok(())
}

fn check(scenario: &str) -> Result<()> {
    let book = Book::open(&library::find(scenario)?, &Choices::default())?;
    simulated::check(&book)?;
    println!(
        "{}: {} cells, {} runs each",
        book.name,
        book.cells.len(),
        book.base.repetitions
    );
    Ok(())
}

/// Reads and checks everything, then does the work in a sandbox and ends with its exit code.
fn run_scenario(args: &args::Run) -> Result<()> {
    let choices = Choices {
        quick: args.quick,
        set: args.set.clone(),
        only: args.only.clone(),
        repetitions: args.repetitions,
        seed: args.seed,
    };
    let mut book = Book::open(&library::find(&args.scenario)?, &choices)?;
    if args.simulate {
        simulated::demand(&mut book);
    }
    simulated::check(&book)?;
    let host = prerequisites(&book)?;
    let out = output_directory(&args.out)?;
    let identity = Identity::of(&book, &host.kernel, host.cpus)?;
    resume::check(&out, &identity, args.fresh)?;
    let work = || enclosed(&book, &out, host, args, &identity);
    if !simulated::needs_testbed(&book) {
        return work();
    }
    let work = |furnished: Result<(), sandbox::SandboxError>| {
        let outcome = furnished
            .map_err(|error| unsupported(&error))
            .and_then(|()| work());
        exit::number(&outcome)
    };
    match sandbox::enclose(work).map_err(|error| unsupported(&error))? {
        0 => Ok(()),
        code => std::process::exit(code.into()),
    }
}

/// The work, inside the sandbox if it needs one.
fn enclosed(
    book: &Book,
    out: &Path,
    host: Host,
    args: &args::Run,
    identity: &Identity,
) -> Result<()> {
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let journal = Journal::open(out, identity, args.fresh)?;
    if !journal.done.is_empty() {
        eprintln!(
            "Going on: {} runs are done (--fresh begins anew)",
            journal.done.len()
        );
    }
    let result = runtime.block_on(run::run(book, out, host, command, journal))?;
    let text = serde_json::to_string_pretty(&result)?;
    fs::write(out.join("result.json"), &text)
        .with_context(|| format!("cannot write into {}", out.display()))?;
    resume::finish(out)?;
    let page = report::rebuild(out)?;
    match args.json {
        true => println!("{text}"),
        false => print!("{}\nReport: {}\n", table::text(&result), page.display()),
    }
    verdict_of(&result)
}

fn verdict_of(result: &LabResult) -> Result<()> {
    let runs = || result.cells.iter().flat_map(|cell| &cell.runs);
    let failed = runs().filter(|run| run.failed.is_some()).count();
    let missed = result.checks.iter().filter(|check| !check.pass).count();
    match (failed, missed) {
        (0, 0) => Ok(()),
        _ => bail!(
            "{failed} of {} runs failed, {missed} of {} checks not met",
            runs().count(),
            result.checks.len()
        ),
    }
}

/// What the scenario needs of this machine; its facts if all is there.
fn prerequisites(book: &Book) -> Result<Host> {
    let scenarios = || simulated::on_testbed(book);
    let programs: std::collections::BTreeSet<Program> = scenarios()
        .flat_map(|s| &s.flows)
        .filter(|flow| flow.when)
        .map(|flow| flow.program)
        .collect();
    let relays: std::collections::BTreeSet<RelayProgram> = scenarios()
        .flat_map(|s| s.relays.values())
        .filter(|relay| relay.when)
        .map(|relay| relay.program)
        .collect();
    let versions = programs::versions(programs, relays)?;
    controls::check(book)?;
    windows(book)?;
    if scenarios()
        .flat_map(|s| &s.links)
        .any(|link| link.kind == LinkKind::Emulated)
    {
        let tun = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        tun.map_err(|error| {
            Refusal::unsupported(format!(
                "cannot open /dev/net/tun ({error}), which emulated links need; run as root, or: \
             sudo modprobe tun && sudo chmod 666 /dev/net/tun"
            ))
        })?;
    }
    machine::describe(versions)
}

/// A socket's buffers end at limits that are the whole machine's.
fn windows(book: &Book) -> Result<()> {
    let flows = simulated::on_testbed(book).flat_map(|scenario| &scenario.flows);
    let windows = flows
        .filter(|flow| flow.when)
        .filter_map(|flow| flow.window);
    let Some(largest) = windows.max() else {
        return Ok(());
    };
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let limit = fs::read_to_string(path).ok();
        let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
        if limit.is_some_and(|limit| limit < largest.get()) {
            return Err(Refusal::unsupported(format!(
                "a window of {largest} is above this machine's {name}; allow it: sysctl -w {name}={}",
                largest.get()
            )));
        }
    }
    Ok(())
}

/// Where the sandbox lays fresh file systems.
const HIDDEN: [&str; 3] = ["/run", "/proc", "/dev/shm"];

fn output_directory(out: &Path) -> Result<std::path::PathBuf> {
    let made = fs::create_dir_all(out).and_then(|()| fs::canonicalize(out));
    let out = made.map_err(|error| Refusal::usage(format!("--out {}: {error}", out.display())))?;
    match HIDDEN.iter().any(|hidden| out.starts_with(hidden)) {
        true => Err(Refusal::usage(format!(
            "--out {}: must not be below {}",
            out.display(),
            HIDDEN.join(", ")
        ))),
        false => Ok(out),
    }
}

/// The sandbox was refused: what to change.
fn unsupported(error: &sandbox::SandboxError) -> anyhow::Error {
    let advice = match rustix::process::geteuid().is_root() {
        true => {
            "inside a container, give it CAP_SYS_ADMIN and an unmasked /proc (docker: --privileged)"
        }
        false => {
            "run as root, or allow user namespaces: sysctl user.max_user_namespaces above 0, \
             kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04)"
        }
    };
    Refusal::unsupported(format!("{error}; {advice}"))
}
