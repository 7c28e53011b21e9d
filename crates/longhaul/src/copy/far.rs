// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a copy as a process of its own: here a child, over there one that ssh starts. Whatever ends it, the other
//! end and the files are as a power loss would leave them: good to go on with.

use super::{
    args::Args,
    message,
    order::{GREETING, Report, Role},
};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::Sender,
};

/// What a login may print before the greeting, in bytes.
const NOISE_MAX: usize = 64 << 10;

/// The process, and the way to it. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Far {
    child: Child,
    to: ChildStdin,
    from: Option<BufReader<ChildStdout>>,
}

impl Far {
    /// Starts it here, or on `host`.
    pub(super) fn start(host: Option<&str>, args: &Args) -> Result<Self> {
        let mut command = match host {
            None => Command::new(std::env::current_exe()?),
            Some(host) => {
                let mut words = args.ssh.split_whitespace();
                let mut ssh = Command::new(words.next().unwrap_or("ssh"));
                ssh.args(words).args(["--", host, &args.remote_program]);
                ssh
            }
        };
        command.args(["copy", "--end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.spawn();
        let mut child =
            spawned.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = BufReader::new(from.context("no pipe")?);
        let mut far = Self {
            child,
            to: to.context("no pipe")?,
            from: None,
        };
        far.from = Some(far.greeted(from, host)?);
        Ok(far)
    }

    /// Reads past whatever a login prints.
    fn greeted(
        &mut self,
        mut from: BufReader<ChildStdout>,
        host: Option<&str>,
    ) -> Result<BufReader<ChildStdout>> {
        let mut noise = Vec::new();
        while noise.len() < NOISE_MAX {
            let begin = noise.len();
            if from.read_until(b'\n', &mut noise)? == 0 {
                break;
            }
            if noise[begin..].ends_with(GREETING) {
                return Ok(from);
            }
        }
        let place = host.unwrap_or("this machine");
        let said = String::from_utf8_lossy(&noise);
        bail!(
            "no longhaul answers on {place} (--remote-program says where it is there){}",
            match said.trim() {
                "" => String::new(),
                said => format!(": {}", said.lines().last().unwrap_or_default()),
            }
        );
    }

    /// The next report; `None` when it has ended.
    pub(super) fn report(&mut self) -> Result<Option<Report>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        message::read(from)
    }

    /// A [`super::order::Begin`], or the meeting that was put off.
    pub(super) fn tell(&mut self, message: &impl Serialize) -> Result<()> {
        message::write(&mut self.to, message)?;
        Ok(self.to.flush()?)
    }

    /// From now on its reports go there, and `None` at its end.
    pub(super) fn report_to(&mut self, role: Role, to: Sender<(Role, Option<Report>)>) {
        let Some(mut from) = self.from.take() else {
            return;
        };
        std::thread::spawn(move || {
            loop {
                // What can't be read is an end, too.
                let report = message::read(&mut from).unwrap_or_default();
                let over = report.is_none();
                if to.send((role, report)).is_err() || over {
                    return;
                }
            }
        });
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
