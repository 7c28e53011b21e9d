// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a copy as a process of its own: here a child, over there one that ssh or a site starts. Whatever ends it, the other
//! end and the files are as a power loss would leave them: good to go on with.

use super::{keyring::Keyring, site_client as client};
use crate::{
    copy::{config::Config, location::Host},
    protocol::{
        control::Role,
        hello::{GREETING, Hello},
        message,
        report::Report,
    },
};
use anyhow::{Context as _, Result, bail};
use longhaul_command::errln;
use longhaul_command::{console::escape, threads};
use longhaul_linux::process_sockets;
use longhaul_transport::duplex::Duplex;
use serde::Serialize;
use std::{
    fmt::Display,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

/// What a login may print before the greeting, in bytes.
const LOGIN_OUTPUT_MAX: u64 = 64 << 10;

/// Where it may stand why an end is gone that said nothing.
pub(crate) const LOG_HINT: &str = "see what was said before this, or that host's journal";

/// The longest line that ssh or the far side says on standard error; what is longer is divided.
const LINE_MAX: u64 = 4 << 10;

/// How long the last words of one that does not answer are waited for: a process that ssh left behind may keep its standard error
/// open for ever.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// The process, and the way to it. Dropped, it ends.
pub(crate) struct EndpointProcess {
    channel: Channel,
    to: Box<dyn Write + Send>,
    from: Option<ReportReader>,
}

/// Ends when ssh and the far side have nothing more to say on standard error.
type StderrEnd = Receiver<()>;

type ReportReader = BufReader<Box<dyn Read + Send>>;

/// What it hangs on.
#[derive(Debug)]
enum Channel {
    /// It is one, or ssh.
    Child(Child),
    /// The site has it.
    Site(Duplex),
}

impl EndpointProcess {
    /// Starts it here, or on `host`.
    pub(crate) fn start(host: Option<&Host>, config: &Config, keys: &Keyring) -> Result<Self> {
        let (mut far, last_word) = match host {
            None => Self::spawn(&mut Command::new(std::env::current_exe()?)),
            Some(Host::Ssh(host)) => {
                let mut words = config.ssh.split_whitespace();
                let mut ssh = Command::new(words.next().unwrap_or("ssh"));
                ssh.args(words).args(["--", host, &config.remote_program]);
                Self::spawn(ssh.stderr(Stdio::piped()))
            }
            Some(Host::Site { address, export }) => {
                let token = keys.token(address).context("no token")?;
                Ok((Self::at_site(client::open(address, export, token)?), None))
            }
        }?;
        far.await_greeting(host, last_word)?;
        Ok(far)
    }

    /// Where the site that has it was reached, or its host by ssh, if that went there without detours.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        match &self.channel {
            Channel::Site(line) => Some(line.peer()),
            Channel::Child(ssh) => {
                let mut sockets = process_sockets::tcp(ssh.id(), |_| true);
                let peer = sockets.find_map(|socket| TcpStream::from(socket).peer_addr().ok())?;
                Some(peer.ip().to_canonical())
            }
        }
    }

    fn at_site(line: Duplex) -> Self {
        Self {
            to: Box::new(line.clone()),
            from: Some(BufReader::new(Box::new(line.clone()))),
            channel: Channel::Site(line),
        }
    }

    fn spawn(command: &mut Command) -> Result<(Self, Option<StderrEnd>)> {
        command.args(["copy", "--end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.spawn();
        let mut child =
            spawned.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let said = child.stderr.take().map(print_lines).transpose()?;
        let far = Self {
            channel: Channel::Child(child),
            to: Box::new(to.context("no pipe")?),
            from: Some(BufReader::new(Box::new(from.context("no pipe")?))),
        };
        Ok((far, said))
    }

    /// Reads past whatever a login prints.
    fn await_greeting(&mut self, host: Option<&Host>, last_word: Option<StderrEnd>) -> Result<()> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        let (mut from, mut noise) = (from.take(LOGIN_OUTPUT_MAX), Vec::new());
        loop {
            let begin = noise.len();
            if from.read_until(b'\n', &mut noise)? == 0 {
                break;
            }
            if noise[begin..].ends_with(GREETING) {
                return Ok(());
            }
        }
        if let Some(last_word) = last_word {
            let _said_or_too_late = last_word.recv_timeout(STDERR_TIMEOUT);
        }
        let place = host_name(host);
        let said = String::from_utf8_lossy(&noise);
        bail!(
            "no longhaul answers on {place} (--remote-program says where it is there){}",
            match said.trim() {
                "" => String::new(),
                said => format!(": {}", escape(said.lines().last().unwrap_or_default())),
            }
        );
    }

    /// Its first message; `None` when it has ended.
    pub(super) fn receive_hello(&mut self, host: Option<&Host>) -> Result<Option<Hello>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Hello::read(from, host_name(host))
    }

    /// The next report; `None` when it has ended.
    pub(crate) fn receive_report(&mut self) -> Result<Option<Report>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Ok(message::read(from)?.map(Report::escaped))
    }

    /// A [`crate::protocol::control::Begin`], or the meeting that was put off.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        message::write(&mut self.to, message)?;
        Ok(self.to.flush()?)
    }

    /// From now on its reports go there, and `None` at its end.
    pub(crate) fn forward_reports(
        &mut self,
        role: Role,
        to: Sender<(Role, Option<Report>)>,
    ) -> Result<()> {
        let mut from = self.from.take().context("it reports elsewhere")?;
        threads::spawn(move || {
            loop {
                // What can't be read is an end, too.
                let report = message::read(&mut from).unwrap_or_default();
                let report = report.map(Report::escaped);
                let over = report.is_none();
                if to.send((role, report)).is_err() || over {
                    return;
                }
            }
        })?;
        Ok(())
    }
}

/// What a host is called.
pub(super) fn host_name(host: Option<&Host>) -> &dyn Display {
    match host {
        Some(host) => host,
        None => &"this machine",
    }
}

/// Says what comes on another's standard error, line by line, escaped: it may be anybody's text, and this may be a terminal.
fn print_lines(from: impl Read + Send + 'static) -> Result<StderrEnd> {
    let (to, said) = channel();
    threads::spawn(move || {
        let _until_the_end: Sender<()> = to;
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            errln!("{}", String::from_utf8_lossy(line.trim_ascii_end()));
            line.clear();
        }
    })?;
    Ok(said)
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        match &mut self.channel {
            Channel::Child(child) => {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
            Channel::Site(line) => line.cut(),
        }
    }
}
