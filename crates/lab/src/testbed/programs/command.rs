// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command that the scenario names, and the one at the other end that serves it. Each runs contained
//! ([`longhaul_linux::contained`]): with it ends all that it started, and what that used is known.

use super::{daemon::Daemon, finish, longhaul};
use crate::{
    measure::Outcome,
    network::Topology,
    scenario::{
        Flow,
        words::{self, Place},
    },
    testbed::payload::{Store, payload_name},
};
use anyhow::{Context, Result, bail};
use longhaul_linux::{contained::Ended, netns::Netns};
use longhaul_report::registry;
use longhaul_results::result::Metrics;
use rustix::fs::{Access, access};
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What one end of a flow runs.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The flow's name, and for a server what tells it from the client.
    name: String,
    words: Vec<String>,
    home: PathBuf,
    /// Where records go.
    directory: PathBuf,
}

impl Order {
    /// The command of `flow`.
    pub(crate) fn of(
        flow: &Flow,
        topology: &Topology,
        store: &Store,
        directory: &Path,
    ) -> Result<Self> {
        let host = (&flow.from, flow.name.clone());
        Self::at(host, &flow.command, flow, topology, store, directory)
    }

    /// Its server, if it has one, and where that listens.
    pub(crate) fn of_server(
        flow: &Flow,
        topology: &Topology,
        store: &Store,
        directory: &Path,
    ) -> Result<Option<(Self, u16)>> {
        let Some(port) = flow.ready.filter(|_| !flow.server.is_empty()) else {
            return Ok(None);
        };
        let host = (&flow.to, server_name(flow));
        let order = Self::at(host, &flow.server, flow, topology, store, directory)?;
        Ok(Some((order, port)))
    }

    fn at(
        (host, name): (&String, String),
        words: &[String],
        flow: &Flow,
        topology: &Topology,
        store: &Store,
        directory: &Path,
    ) -> Result<Self> {
        let all = words.iter();
        let all = all.map(|word| filled(word, host, flow, topology, store));
        Ok(Self {
            name,
            words: all.collect::<Result<_>>()?,
            home: store.scratch(host),
            directory: directory.to_owned(),
        })
    }

    /// Runs the command of a flow of so many `bytes` to its end.
    pub(crate) async fn measure(&self, netns: &Netns, bytes: u64) -> Result<Outcome> {
        let mut command = self.contained()?;
        let output = |ending| {
            let path = self.file(ending);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        command
            .stdin(Stdio::null())
            .stdout(output("out")?)
            .stderr(output("log")?);
        finish(command, &self.words[0], netns).await?;
        let ended = self.ended()?;
        if ended.code != 0 {
            bail!(
                "{} ended with {}: {}",
                self.words[0],
                ended.code,
                said(&ended.last_line)
            );
        }
        Ok(Outcome {
            bytes,
            seconds: ended.seconds,
            retransmits: None,
            connections_bps: Vec::new(),
            extra: Metrics::from([
                (registry::CPU.to_owned(), ended.cpu_s),
                (
                    registry::PEAK_MEMORY.to_owned(),
                    ended.peak_memory_bytes as f64,
                ),
            ]),
        })
    }

    /// Adds what this server, which has ended, used to what its command did.
    pub(crate) fn add_to(&self, outcome: &mut Outcome) -> Result<()> {
        let own = self.ended()?;
        let metrics = &mut outcome.extra;
        metrics.insert(registry::SERVER_CPU.to_owned(), own.cpu_s);
        let cpu = metrics.entry(registry::CPU.to_owned()).or_default();
        *cpu += own.cpu_s;
        let peak = metrics.entry(registry::PEAK_MEMORY.to_owned()).or_default();
        *peak = peak.max(own.peak_memory_bytes as f64);
        Ok(())
    }

    /// Starts a server; it listens at `port` on return.
    pub(crate) async fn serve(&self, netns: &Netns, port: u16) -> Result<Daemon> {
        let mut daemon = Daemon::start(&self.name, self.contained()?, netns, &self.directory)?;
        daemon.listening(netns, port).await?;
        Ok(daemon)
    }

    /// Nobody's settings have a part in it, and nothing is written into anybody's home.
    fn contained(&self) -> Result<Command> {
        let mut command = longhaul::command()?;
        command
            .args(["lab", "contain", "--report"])
            .arg(self.file("json"))
            .arg("--")
            .args(&self.words)
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .envs(env::var_os("PATH").map(|path| ("PATH", path)));
        Ok(command)
    }

    /// How it went, when it has ended.
    pub(crate) fn ended(&self) -> Result<Ended> {
        let path = self.file("json");
        let text = fs::read(&path).with_context(|| {
            format!(
                "{} left no record of its end (after SIGTERM it has 10 s): {}",
                self.name,
                self.last_words()
            )
        })?;
        serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
    }

    /// What it said last, while it runs.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.file("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        said(last.unwrap_or_default().trim()).to_owned()
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }
}

fn server_name(flow: &Flow) -> String {
    format!("{}-server", flow.name)
}

fn said(line: &str) -> &str {
    match line {
        "" => "it said nothing",
        line => line,
    }
}

/// The file that is to have arrived, if the flow names one.
pub(crate) fn arrived(flow: &Flow, topology: &Topology, store: &Store) -> Result<Option<PathBuf>> {
    let Some(file) = &flow.arrives else {
        return Ok(None);
    };
    let file = filled(file, &flow.to, flow, topology, store)?;
    Ok(Some(store.scratch(&flow.to).join(file)))
}

fn filled(
    word: &str,
    host: &str,
    flow: &Flow,
    topology: &Topology,
    store: &Store,
) -> Result<String> {
    let path = |path: PathBuf| path.display().to_string();
    let payload = payload_name(flow.size.unwrap_or_default());
    let look_up = |place: Place<'_>| match place {
        Place::Address(other) => address(topology, host, other),
        Place::Scratch(other) => Ok(path(store.scratch(other))),
        Place::Payload => Ok(path(store.directory().join(&payload))),
        Place::Longhaul => env::current_exe()
            .map(path)
            .map_err(|error| error.to_string()),
    };
    words::fill(word, look_up).map_err(anyhow::Error::msg)
}

/// The address at which `host` reaches `other`, which may be itself.
pub(crate) fn address(topology: &Topology, host: &str, other: &str) -> Result<String, String> {
    let own = || topology.addresses(other).first().copied();
    let address = match host == other {
        true => own(),
        false => topology.address(host, other),
    };
    let address =
        address.ok_or_else(|| format!("no path leads from {host:?} to a host {other:?}"))?;
    Ok(address.to_string())
}

/// The program of the flow's command or server that is not on this machine.
pub(crate) fn missing(flow: &Flow) -> Option<&str> {
    let both = [flow.command.first(), flow.server.first()];
    let mut programs = both.into_iter().flatten().map(String::as_str);
    programs.find(|program| !program.contains('{') && !is_there(program))
}

/// As execvp(3) looks: a name with a slash is a path, any other is looked for in PATH.
fn is_there(program: &str) -> bool {
    let may_run = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return may_run(Path::new(program));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|place| may_run(&place.join(program)))
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
    fn what_is_not_installed_is_named() {
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
