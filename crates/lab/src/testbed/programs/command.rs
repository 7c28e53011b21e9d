// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of a flow: the client's, and that of its server. Each runs contained
//! ([`longhaul_linux::contained`]): all its processes end with it, and their resource use is
//! measured.

use super::{daemon::Daemon, run_to_end};
use crate::{
    command_check,
    measure::Outcome,
    network::Topology,
    scenario::{
        Flow,
        placeholders::{self, Placeholder},
    },
    testbed::payload::{PayloadStore, payload_name},
};
use anyhow::{Context, Result, bail};
use longhaul_linux::{contained::ExitReport, netns::Netns, programs};
use longhaul_report::registry;
use longhaul_results::result::Metrics;
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Command of one host of a flow.
#[derive(Debug, Clone)]
pub(crate) struct HostCommand {
    /// Name of its files: the flow's name, for a server with a suffix.
    name: String,
    words: Vec<String>,
    home: PathBuf,
    /// Directory for records.
    directory: PathBuf,
}

impl HostCommand {
    /// Returns the client's command of `flow`.
    pub(crate) fn of(
        flow: &Flow,
        topology: &Topology,
        store: &PayloadStore,
        directory: &Path,
    ) -> Result<Self> {
        let name = flow.name.clone();
        Self::build(
            name,
            &flow.from,
            &flow.command,
            flow,
            topology,
            store,
            directory,
        )
    }

    /// Returns the server's command of `flow` and its port, if it has one.
    pub(crate) fn of_server(
        flow: &Flow,
        topology: &Topology,
        store: &PayloadStore,
        directory: &Path,
    ) -> Result<Option<(Self, u16)>> {
        let Some(port) = flow.server_port.filter(|_| !flow.server.is_empty()) else {
            return Ok(None);
        };
        let name = server_name(flow);
        let command = Self::build(
            name,
            &flow.to,
            &flow.server,
            flow,
            topology,
            store,
            directory,
        )?;
        Ok(Some((command, port)))
    }

    fn build(
        name: String,
        host: &str,
        words: &[String],
        flow: &Flow,
        topology: &Topology,
        store: &PayloadStore,
        directory: &Path,
    ) -> Result<Self> {
        let all = words.iter();
        let all = all.map(|word| fill_word(word, host, flow, topology, store));
        Ok(Self {
            name,
            words: all.collect::<Result<_>>()?,
            home: store.scratch(host),
            directory: directory.to_owned(),
        })
    }

    /// Runs the command to its end, for a flow of `bytes` with these `figures`.
    pub(crate) async fn measure(
        &self,
        netns: &Netns,
        bytes: u64,
        figures: &[String],
    ) -> Result<Outcome> {
        let mut command = self.contained()?;
        let output = |ending| {
            let path = self.file(ending);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        command
            .stdin(Stdio::null())
            .stdout(output("out")?)
            .stderr(output("log")?);
        run_to_end(command, &self.words[0], netns).await?;
        let ended = self.read_report()?;
        if ended.code != 0 {
            bail!(
                "{} ended with {}: {}",
                self.words[0],
                ended.code,
                or_no_output(&ended.last_line)
            );
        }
        let mut extra = self.read_figures(figures)?;
        extra.insert(registry::CPU.to_owned(), ended.cpu_s);
        extra.insert(
            registry::PEAK_MEMORY.to_owned(),
            ended.peak_memory_bytes as f64,
        );
        Ok(Outcome {
            bytes,
            seconds: ended.seconds,
            retransmits: None,
            connections_bps: Vec::new(),
            extra,
        })
    }

    /// Reads the numbers of these names from the JSON object in the last line of the output. Null is no number of this run.
    fn read_figures(&self, names: &[String]) -> Result<Metrics> {
        if names.is_empty() {
            return Ok(Metrics::new());
        }
        let text = fs::read_to_string(self.file("out"))?;
        let last = text.lines().last().unwrap_or_default();
        let printed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(last)
            .with_context(|| format!("{} printed no figures: {last:?}", self.words[0]))?;
        let figure = |name: &String| {
            let missing = || format!("{} printed no number {name:?}", self.words[0]);
            match printed.get(name) {
                Some(serde_json::Value::Null) => Ok(None),
                value => {
                    let number = value.and_then(serde_json::Value::as_f64);
                    Ok(Some((name.clone(), number.with_context(missing)?)))
                }
            }
        };
        let figures: Result<Vec<_>> = names.iter().map(figure).collect();
        Ok(figures?.into_iter().flatten().collect())
    }

    /// Adds the resource use of this server, which has ended, to the outcome of its client.
    pub(crate) fn add_usage_to(&self, outcome: &mut Outcome) -> Result<()> {
        let own = self.read_report()?;
        let metrics = &mut outcome.extra;
        metrics.insert(registry::SERVER_CPU.to_owned(), own.cpu_s);
        let cpu = metrics.entry(registry::CPU.to_owned()).or_default();
        *cpu += own.cpu_s;
        let peak = metrics.entry(registry::PEAK_MEMORY.to_owned()).or_default();
        *peak = peak.max(own.peak_memory_bytes as f64);
        Ok(())
    }

    /// Starts the server; it listens at `port` on return.
    pub(crate) async fn serve(&self, netns: &Netns, port: u16) -> Result<Daemon> {
        let mut daemon = Daemon::start(&self.name, self.contained()?, netns, &self.directory)?;
        daemon.wait_until_listening(netns, port).await?;
        Ok(daemon)
    }

    /// Wraps the command in `lab contain`, without the user's environment and home directory.
    fn contained(&self) -> Result<Command> {
        let mut command = command_check::longhaul()?;
        command
            .args(["lab", "contain", "--report"])
            .arg(self.file("json"))
            .arg("--")
            .args(&self.words)
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .env("PATH", programs::search_path());
        Ok(command)
    }

    /// Reads exit status and resource use of the ended command.
    pub(crate) fn read_report(&self) -> Result<ExitReport> {
        let path = self.file("json");
        let text = fs::read(&path).with_context(|| {
            format!(
                "{} wrote no report (it has 10 s after SIGTERM): {}",
                self.name,
                self.last_log_line()
            )
        })?;
        serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
    }

    /// Last line of the log of a running command.
    pub(crate) fn last_log_line(&self) -> String {
        let text = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        or_no_output(last.unwrap_or_default().trim()).to_owned()
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }
}

fn server_name(flow: &Flow) -> String {
    format!("{}-server", flow.name)
}

fn or_no_output(line: &str) -> &str {
    match line {
        "" => "no output",
        line => line,
    }
}

/// File that the command must have created, if the flow names one.
pub(crate) fn created_file(
    flow: &Flow,
    topology: &Topology,
    store: &PayloadStore,
) -> Result<Option<PathBuf>> {
    let Some(file) = &flow.output_file else {
        return Ok(None);
    };
    let file = fill_word(file, &flow.to, flow, topology, store)?;
    Ok(Some(store.scratch(&flow.to).join(file)))
}

fn fill_word(
    word: &str,
    host: &str,
    flow: &Flow,
    topology: &Topology,
    store: &PayloadStore,
) -> Result<String> {
    let path = |path: PathBuf| path.display().to_string();
    let payload = payload_name(flow.size.unwrap_or_default());
    let look_up = |placeholder: Placeholder<'_>| match placeholder {
        Placeholder::Address(other) => address(topology, host, other),
        Placeholder::Scratch(other) => Ok(path(store.scratch(other))),
        Placeholder::Payload => Ok(path(store.directory().join(&payload))),
        Placeholder::Longhaul => env::current_exe()
            .map(path)
            .map_err(|error| error.to_string()),
    };
    placeholders::fill(word, look_up).map_err(anyhow::Error::msg)
}

/// Address at which `host` reaches `other`, which may be the same host.
pub(crate) fn address(topology: &Topology, host: &str, other: &str) -> Result<String, String> {
    let own = || topology.addresses(other).first().copied();
    let address = if host == other {
        own()
    } else {
        topology.address(host, other)
    };
    let address =
        address.ok_or_else(|| format!("no path leads from {host:?} to a host {other:?}"))?;
    Ok(address.to_string())
}

/// Returns the program of the flow's command or server that is not installed.
pub(crate) fn missing(flow: &Flow) -> Option<&str> {
    let both = [flow.command.first(), flow.server.first()];
    let mut programs = both.into_iter().flatten().map(String::as_str);
    programs.find(|program| !program.contains('{') && programs::find(program).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(command: &str) -> Flow {
        toml::from_str(&format!(
            "name = 'f'\nprogram = 'command'\nfrom = 'a'\nto = 'b'\n{command}"
        ))
        .unwrap()
    }

    #[test]
    fn finds_the_program_that_is_not_installed() {
        assert_eq!(missing(&flow("command = ['sh', '-c', 'x']")), None);
        assert_eq!(missing(&flow("command = ['{longhaul}', 'copy']")), None);
        assert_eq!(
            missing(&flow("command = ['/no/such', 'x']")),
            Some("/no/such")
        );
        let server = flow("command = ['cat']\nserver = ['no-such-program']");
        assert_eq!(missing(&server), Some("no-such-program"));
    }
}
