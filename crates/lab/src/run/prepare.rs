// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preparation of an experiment: the scenario is read and checked, and this machine has what it
//! needs. Nothing has been changed yet.

use super::{
    check_prerequisites,
    execution::{self, run_order},
    host_info::unsupported,
    resume::{self, Journal},
    skip_missing_commands,
};
use crate::{
    check::program_limits,
    experiment::{Choices, ExperimentPlan, file},
    network::link,
    simulated,
    testbed::controls,
};
use anyhow::{Context, Result, bail};
use longhaul_command::{
    console::{escaped_lines, terminal_size},
    exit::{self, Refusal},
};
use longhaul_command::{errln, outln};
use longhaul_linux::sandbox;
use longhaul_results::{
    identity::Identity,
    report,
    result::{Host, LabResult},
    table,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Options of `longhaul lab run` that apply to each of its scenarios.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) choices: Choices,
    /// Whether all cells run under simulated time.
    pub(crate) simulate: bool,
    /// Directory for results.
    pub(crate) out: PathBuf,
    /// Whether an interrupted run is discarded instead of resumed.
    pub(crate) restart: bool,
    /// Whether to print the result on standard output instead of a table.
    pub(crate) json: bool,
}

/// Experiment that is ready to run, with the directory for its result.
#[derive(Debug)]
pub(crate) struct PreparedExperiment {
    pub(crate) experiment: ExperimentPlan,
    pub(crate) identity: Identity,
    pub(crate) out: PathBuf,
    host: Host,
    restart: bool,
    json: bool,
}

impl PreparedExperiment {
    /// Reads and checks `scenario` with the options of the request.
    pub(crate) fn read(scenario: &str, request: &Request) -> Result<Self> {
        let mut experiment = ExperimentPlan::open(file::find(scenario)?, &request.choices)?;
        if request.simulate {
            experiment.simulate();
        }
        validate(&experiment)?;
        skip_missing_commands(&mut experiment)?;
        let host = check_prerequisites(&experiment)?;
        Ok(Self {
            identity: identity(&experiment, &host.kernel, host.cpus)?,
            experiment,
            out: request.out.clone(),
            host,
            restart: request.restart,
            json: request.json,
        })
    }

    /// Creates the directory for the result, and replaces its path by the real one.
    pub(crate) fn create_directory(&mut self) -> Result<()> {
        self.out = output_directory(&self.out)?;
        Ok(())
    }

    /// Refuses to replace another experiment that was interrupted.
    pub(crate) fn check_resumable(&self) -> Result<()> {
        resume::check(&self.out, &self.identity, self.restart)
    }

    /// Runs the experiment, in a sandbox if it needs a testbed, and returns the exit code. Errors
    /// are printed.
    pub(crate) fn execute(self) -> Result<u8> {
        let out = output_directory(&self.out)?;
        let _lock = lock_directory(&out)?;
        check_replaceable(&out)?;
        self.check_resumable()?;
        let testbed = self.experiment.needs_testbed();
        let work = || self.run_and_report(&out);
        if !testbed {
            return Ok(exit::report_outcome(&work()));
        }
        let work = |set_up: Result<(), sandbox::SandboxError>| {
            let outcome = set_up
                .map_err(|error| unsupported(&error))
                .and_then(|()| work());
            exit::report_outcome(&outcome)
        };
        sandbox::run(work).map_err(|error| unsupported(&error))
    }

    fn run_and_report(self, out: &Path) -> Result<()> {
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let runtime = longhaul_command::event_loop::current_thread()?;
        let journal = Journal::open(out, &self.identity, self.restart)?;
        if !journal.done.is_empty() {
            errln!(
                "Resuming: {} of {} runs are done (--restart starts again)",
                journal.done.len(),
                run_order(&self.experiment).len()
            );
        }
        let mut result = runtime.block_on(execution::run(
            &self.experiment,
            out,
            self.host,
            command,
            journal,
        ))?;
        result.identity = Some(self.identity);
        let text = serde_json::to_string_pretty(&result)?;
        fs::write(out.join("result.json"), &text)
            .with_context(|| format!("cannot write into {}", out.display()))?;
        resume::finish(out)?;
        let page = report::rebuild(out)?;
        if self.json {
            outln!("{text}");
        } else {
            outln!(
                "{}\nReport: {}",
                escaped_lines(&table::render(&result, columns())),
                page.display()
            );
        }
        check_outcome(&result)
    }
}

/// Width of the terminal on standard output, if it is one.
fn columns() -> Option<usize> {
    let (columns, _) = terminal_size(std::io::stdout())?;
    Some(columns.into())
}

fn check_outcome(result: &LabResult) -> Result<()> {
    let runs = || result.cells.iter().flat_map(|cell| &cell.runs);
    let failed = runs().filter(|run| run.failed.is_some()).count();
    let checks = &result.checks;
    let failed_checks = checks.iter().filter(|check| check.failed()).count();
    let undecided = checks.iter().filter(|check| check.undecided.is_some());
    match (failed, failed_checks, undecided.count()) {
        (0, 0, 0) => Ok(()),
        (0, 0, undecided) => Err(Refusal::undecided(format!(
            "{undecided} of {} checks undecided: the emulator was late; run it again on an idle machine",
            checks.len()
        ))),
        _ => bail!(
            "{failed} of {} runs failed, {failed_checks} of {} checks failed",
            runs().count(),
            checks.len()
        ),
    }
}

/// Checks what the check of single keys cannot find: simulated cells, limits of programs, and names
/// of congestion controls. Warns of links whose settings are seldom meant.
pub(crate) fn validate(experiment: &ExperimentPlan) -> Result<()> {
    simulated::check(experiment)?;
    program_limits::check(experiment)?;
    controls::check_names(experiment)?;
    let cells = experiment
        .cells
        .iter()
        .map(|cell| link::warnings(&cell.scenario));
    for warning in cells.flatten().collect::<BTreeSet<_>>() {
        errln!("warning: {warning}");
    }
    Ok(())
}

/// Directories that the sandbox covers with new file systems.
const SANDBOX_MOUNTS: [&str; 3] = ["/run", "/proc", "/dev/shm"];

/// Creates the directory and returns its real path.
fn output_directory(out: &Path) -> Result<PathBuf> {
    if out.is_file() {
        return Err(Refusal::usage(format!(
            "--out {}: it is a file, not a directory",
            out.display()
        )));
    }
    let made = fs::create_dir_all(out).and_then(|()| fs::canonicalize(out));
    let out = made.map_err(|error| Refusal::usage(format!("--out {}: {error}", out.display())))?;
    if SANDBOX_MOUNTS.iter().any(|mount| out.starts_with(mount)) {
        Err(Refusal::usage(format!(
            "--out {}: must not be below {}",
            out.display(),
            SANDBOX_MOUNTS.join(", ")
        )))
    } else {
        Ok(out)
    }
}

/// Locks the directory, and refuses one that another lab uses. The lock ends with the process.
fn lock_directory(out: &Path) -> Result<File> {
    let place = || format!("cannot open {}", out.display());
    let directory = File::open(out).with_context(place)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Refusal::usage(format!(
            "--out {}: another lab uses it; wait for its end, or choose another directory",
            out.display()
        ))
    })?;
    Ok(directory)
}

/// Refuses a directory with a result or page that no lab wrote, because both would be replaced.
fn check_replaceable(out: &Path) -> Result<()> {
    let ours = |text: &str| {
        serde_json::from_str::<serde_json::Value>(text)
            .is_ok_and(|result| result["longhaul"].is_string())
    };
    check_own_file(out, "result.json", ours)?;
    check_own_file(out, "report.html", |page| {
        page.contains(report::GENERATOR_MARK)
    })?;
    let is_table = |text: &str| text.starts_with("cell");
    check_own_file(out, "cells.csv", is_table)?;
    check_own_file(out, "runs.csv", is_table)
}

fn check_own_file(out: &Path, name: &str, is_ours: fn(&str) -> bool) -> Result<()> {
    let path = out.join(name);
    let Ok(metadata) = fs::symlink_metadata(&path) else {
        return Ok(());
    };
    let ours = metadata.is_file() && fs::read_to_string(&path).is_ok_and(|text| is_ours(&text));
    if ours {
        Ok(())
    } else {
        Err(Refusal::usage(format!(
            "--out {}: {name} was not written by the lab; move it away or choose another directory",
            out.display()
        )))
    }
}

/// Identity of an experiment on a machine with this kernel and number of CPUs.
fn identity(experiment: &ExperimentPlan, kernel: &str, cpus: usize) -> Result<Identity> {
    Ok(Identity {
        scenario: experiment.name.clone(),
        digest: experiment.digest()?,
        seed: experiment.scenario.seed,
        longhaul: longhaul_command::version().to_owned(),
        machine: format!("Linux {kernel}, {cpus} CPUs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_file_as_output_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = output_directory(file.path()).unwrap_err().to_string();
        let named = format!("--out {}: it is a file", file.path().display());
        assert!(error.starts_with(&named), "{error}");
    }

    #[test]
    fn refuses_a_directory_in_use_by_another_lab() {
        let out = tempfile::tempdir().unwrap();
        let first = lock_directory(out.path()).unwrap();
        let error = lock_directory(out.path()).unwrap_err().to_string();
        assert!(error.contains("another lab uses it"), "{error}");
        drop(first);
        lock_directory(out.path()).unwrap();
    }

    #[test]
    fn refuses_to_replace_foreign_files() {
        let out = tempfile::tempdir().unwrap();
        let put = |name, text: &str| fs::write(out.path().join(name), text).unwrap();
        let refused = || check_replaceable(out.path()).unwrap_err().to_string();
        check_replaceable(out.path()).unwrap();
        put("result.json", "my own");
        assert!(refused().contains("result.json was not written"));
        put("result.json", r#"{ "longhaul": "0.1.0" }"#);
        check_replaceable(out.path()).unwrap();
        put("report.html", "my own");
        assert!(refused().contains("report.html was not written"));
        put(
            "report.html",
            &format!("{}0.1.0\">", report::GENERATOR_MARK),
        );
        check_replaceable(out.path()).unwrap();
        // The target of a symbolic link is elsewhere.
        fs::rename(out.path().join("result.json"), out.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", out.path().join("result.json")).unwrap();
        assert!(refused().contains("result.json was not written"));
    }
}
