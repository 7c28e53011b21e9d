// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that run beside the flows until they are stopped: servers, relays and links.

use anyhow::{Context, Result, anyhow, bail};
use longhaul_linux::{netns::Netns, process, sock_diag::SockDiag};
use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::{process::Child, time};

/// Longest time for a daemon to become ready, and to end after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of a daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Running daemon, killed when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` inside `netns`. Standard output and standard error go to
    /// `directory/NAME.log`.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        netns: &Netns,
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = OwnedFd::from(
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?,
        );
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        process::inside(&mut command, netns);
        let mut command = tokio::process::Command::from(command);
        let child = command
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Waits until the daemon listens on a TCP port of `netns`.
    pub(crate) async fn wait_until_listening(&mut self, netns: &Netns, port: u16) -> Result<()> {
        let mut sockets = SockDiag::open(netns)?;
        self.wait_until(&format!("listen on port {port}"), || {
            Ok(sockets.listens_on(port)?)
        })
        .await
    }

    /// Waits until the daemon has printed a line with `words`, as the message of a log line has them.
    pub(crate) async fn wait_until_printed(&mut self, words: &str) -> Result<()> {
        let log = self.log.clone();
        let printed = || {
            Ok(fs::read_to_string(&log)?
                .lines()
                .any(|line| line.contains(words)))
        };
        self.wait_until(&format!("print '{words}'"), printed).await
    }

    async fn wait_until(
        &mut self,
        what: &str,
        mut reached: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let give_up = time::Instant::now() + TIMEOUT;
        while !reached()? {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended with {status} before it could {what}: {}",
                    self.name,
                    self.last_log_line()
                );
            }
            if time::Instant::now() > give_up {
                bail!(
                    "{} did not {what} within {TIMEOUT:?}: {}",
                    self.name,
                    self.last_log_line()
                );
            }
            time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Fails if the daemon has ended. The error has its last line of output.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.early_exit(status)),
        }
    }

    /// Fails if the daemon has ended with an error. A server that serves only one client may end by
    /// itself, without an error.
    pub(crate) fn check_not_failed(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => Err(self.early_exit(status)),
            _ => Ok(()),
        }
    }

    fn early_exit(&self, status: ExitStatus) -> anyhow::Error {
        anyhow!(
            "{} ended with {status} during the run: {}",
            self.name,
            self.last_log_line()
        )
    }

    /// Sends SIGTERM, and kills the daemon if it does not end in time.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.terminate().await.map(drop)
    }

    /// Stops a daemon whose last records are needed.
    ///
    /// # Errors
    /// The daemon had to be killed, so its records are incomplete.
    pub(crate) async fn stop_cleanly(mut self) -> Result<()> {
        if self.terminate().await? {
            Ok(())
        } else {
            bail!(
                "{} did not end when the run was over, and was killed",
                self.name
            )
        }
    }

    async fn terminate(&mut self) -> Result<bool> {
        let pid = self
            .child
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id as i32));
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let ended = time::timeout(TIMEOUT, self.child.wait()).await.is_ok();
        if !ended {
            self.child.kill().await?;
        }
        Ok(ended)
    }

    fn last_log_line(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || format!("no output (see {})", self.log.display()),
            str::to_owned,
        )
    }
}
