// SPDX-License-Identifier: MIT OR Apache-2.0
//! Longhaul's own binary, which the lab runs, and the check of its commands. One process, `longhaul check`, checks all
//! commands of a lab.

use anyhow::{Context, Result, bail};
use longhaul_command::exit::Refusal;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Answer about one command: the TCP addresses at which it would listen, each with its option, or why it would refuse
/// its flags.
pub type Answer = Result<Vec<(String, SocketAddr)>, Refused>;

/// Refusal of a command's flags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Name of the option, without dashes, if the refusal is about one.
    pub option: Option<String>,
    /// The reason.
    pub problem: String,
}

/// Command of longhaul's own binary.
pub(crate) fn longhaul() -> Result<Command> {
    #[cfg(test)]
    return Ok(Command::new(longhaul_testprograms::longhaul()));
    #[cfg(not(test))]
    Ok(Command::new(
        std::env::current_exe().context("cannot find this program's own file")?,
    ))
}

/// The error if the program's file is gone, as after an upgrade.
fn cannot_run(command: &Command) -> String {
    format!("cannot run {}", command.get_program().display())
}

/// Runs a command of longhaul to its end.
///
/// # Errors
/// It fails; the error is its own.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| cannot_run(command))?;
    let error = String::from_utf8_lossy(&output.stderr);
    let problem = error.trim().trim_start_matches("longhaul: ").to_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Refusal::unsupported(problem)),
        _ => bail!(problem),
    }
}

/// Checks `command` with these flags as it would itself, without running it.
pub(crate) fn check(command: &str, flags: &[String]) -> Answer {
    let words = [&[command.to_owned()], flags].concat();
    with_checker(|checker| {
        writeln!(checker.requests, "{}", serde_json::to_string(&words)?)?;
        checker.read()
    })
    .unwrap_or_else(|error| {
        let (option, problem) = (None, format!("cannot check {command}: {error:#}"));
        Err(Refused { option, problem })
    })
}

/// Names of the options of `command`, as typed after `--`.
pub(crate) fn options(command: &str) -> Result<Vec<String>> {
    with_checker(|checker| {
        let options = checker.options.get(command);
        options.cloned().context("longhaul check does not list it")
    })
}

/// The process of `longhaul check`. It ends at the latest with the lab, which holds its standard input.
struct Checker {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    options: BTreeMap<String, Vec<String>>,
    child: Child,
}

impl Checker {
    fn start() -> Result<Self> {
        let mut command = longhaul()?;
        command
            .arg("check")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| cannot_run(&command))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut checker = Self {
            requests: stdin.context("it has no standard input")?,
            answers: BufReader::new(stdout.context("it has no standard output")?),
            options: BTreeMap::new(),
            child,
        };
        checker.options = checker.read()?;
        Ok(checker)
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

static CHECKER: Mutex<Option<Checker>> = Mutex::new(None);

fn with_checker<T>(act: impl FnOnce(&mut Checker) -> Result<T>) -> Result<T> {
    let mut checker = CHECKER.lock().unwrap_or_else(PoisonError::into_inner);
    if checker.is_none() {
        *checker = Some(Checker::start()?);
    }
    act(checker.as_mut().context("it was started just now")?)
}

/// Ends the process, if there is one, so that no zombie is left to the host.
pub(crate) fn end() {
    let checker = CHECKER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(Checker {
        requests,
        mut child,
        ..
    }) = checker
    {
        drop(requests);
        // Fails only in a process that did not start it.
        let _ = child.wait();
    }
}
