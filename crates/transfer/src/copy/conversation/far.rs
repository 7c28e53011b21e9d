// SPDX-License-Identifier: MIT OR Apache-2.0
//! An end of a copy as a process of its own: here a child, over there one that ssh or a site starts. Whatever ends it, the other
//! end and the files are as a power loss would leave them: good to go on with.

use super::{keyring::Keyring, site as client};
use crate::{
    copy::{config::Config, place::Host},
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
const NOISE_MAX: u64 = 64 << 10;

/// Where it may stand why an end is gone that said nothing.
pub(crate) const LAST_TRACES: &str = "see what was said before this, or that host's journal";

/// The longest line that ssh or the far side says on standard error; what is longer is divided.
const LINE_MAX: u64 = 4 << 10;

/// How long the last words of one that does not answer are waited for: a process that ssh left behind may keep its standard error
/// open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The process, and the way to it. Dropped, it ends.
pub(crate) struct Far {
    way: Way,
    to: Box<dyn Write + Send>,
    from: Option<From>,
}

/// Ends when ssh and the far side have nothing more to say on standard error.
type LastWord = Receiver<()>;

type From = BufReader<Box<dyn Read + Send>>;

/// What it hangs on.
#[derive(Debug)]
enum Way {
    /// It is one, or ssh.
    Child(Child),
    /// The site has it.
    Site(Duplex),
}

impl Far {
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
        far.greeted(host, last_word)?;
        Ok(far)
    }

    /// Where the site that has it was reached, or its host by ssh, if that went there without detours.
    pub(crate) fn reached(&self) -> Option<IpAddr> {
        match &self.way {
            Way::Site(line) => Some(line.peer()),
            Way::Child(ssh) => {
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
            way: Way::Site(line),
        }
    }

    fn spawn(command: &mut Command) -> Result<(Self, Option<LastWord>)> {
        command.args(["copy", "--end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.spawn();
        let mut child =
            spawned.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let said = child.stderr.take().map(repeat).transpose()?;
        let far = Self {
            way: Way::Child(child),
            to: Box::new(to.context("no pipe")?),
            from: Some(BufReader::new(Box::new(from.context("no pipe")?))),
        };
        Ok((far, said))
    }

    /// Reads past whatever a login prints.
    fn greeted(&mut self, host: Option<&Host>, last_word: Option<LastWord>) -> Result<()> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        let (mut from, mut noise) = (from.take(NOISE_MAX), Vec::new());
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
            let _said_or_too_late = last_word.recv_timeout(LAST_WORDS);
        }
        let place = shown(host);
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
    pub(super) fn hello(&mut self, host: Option<&Host>) -> Result<Option<Hello>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Hello::read(from, shown(host))
    }

    /// The next report; `None` when it has ended.
    pub(crate) fn report(&mut self) -> Result<Option<Report>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Ok(message::read(from)?.map(Report::escaped))
    }

    /// A [`crate::protocol::control::Begin`], or the meeting that was put off.
    pub(crate) fn tell(&mut self, message: &impl Serialize) -> Result<()> {
        message::write(&mut self.to, message)?;
        Ok(self.to.flush()?)
    }

    /// From now on its reports go there, and `None` at its end.
    pub(crate) fn report_to(
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
pub(super) fn shown(host: Option<&Host>) -> &dyn Display {
    match host {
        Some(host) => host,
        None => &"this machine",
    }
}

/// Says what comes on another's standard error, line by line, escaped: it may be anybody's text, and this may be a terminal.
fn repeat(from: impl Read + Send + 'static) -> Result<LastWord> {
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

impl Drop for Far {
    fn drop(&mut self) {
        match &mut self.way {
            Way::Child(child) => {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
            Way::Site(line) => line.cut(),
        }
    }
}
