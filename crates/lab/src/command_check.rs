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
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
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
    return Ok(Command::new(longhaul_testbed::longhaul()));
    #[cfg(not(test))]
    Ok(Command::new(
        std::env::current_exe().context("cannot find this program's own file")?,
    ))
}

/// Runs a command of longhaul to its end.
///
/// # Errors
/// It fails; the error is its own.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
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

/// The process of `longhaul check`. It ends with the lab, which holds its standard input.
struct Checker {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    options: BTreeMap<String, Vec<String>>,
}

impl Checker {
    fn start() -> Result<Self> {
        let mut command = longhaul()?;
        command
            .arg("check")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = command.spawn()?;
        let mut checker = Self {
            requests: child.stdin.context("it has no standard input")?,
            answers: BufReader::new(child.stdout.context("it has no standard output")?),
            options: BTreeMap::new(),
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

fn with_checker<T>(act: impl FnOnce(&mut Checker) -> Result<T>) -> Result<T> {
    static CHECKER: LazyLock<Result<Mutex<Checker>>> =
        LazyLock::new(|| Checker::start().map(Mutex::new));
    let checker = CHECKER
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error:#}"))?;
    act(&mut checker.lock().unwrap_or_else(PoisonError::into_inner))
}
