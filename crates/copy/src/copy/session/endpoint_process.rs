// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoint of a copy as a process of its own: a local child process, or a remote process that ssh or a site starts. If
//! it is killed, the files are in the same state as after a power loss, and the copy is resumable.

use super::{
    keyring::Keyring,
    site_client as client,
    ssh_process::{StderrEnd, print_lines, ssh_command},
    ssh_tunnel::SshTunnel,
};
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
use longhaul_command::{console::escape, exit::Refusal, threads};
use longhaul_linux::process_sockets;
use longhaul_transport::duplex::SharedTlsStream;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::{
    fmt::Display,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum output of a login before the greeting, in bytes.
const LOGIN_OUTPUT_MAX: u64 = 64 << 10;

/// Hint about where to find the reason why an endpoint exited without a report.
pub(crate) const LOG_HINT: &str = "see the messages above, or that host's journal";

/// Time to wait for the end of standard error after a failed start. A process that ssh left behind may keep standard error
/// open for ever.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait for the exit of ssh after a failed start.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of checks whether ssh has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time without an answer after which a line says so.
const SILENCE_NOTED: Duration = Duration::from_secs(10);

/// Time without an answer after which a host is given up.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Exit code of ssh if ssh itself failed. Any other code is that of the remote command (ssh(1)).
const SSH_FAILED: i32 = 255;

/// Process of an endpoint, with the channel to it. The process ends when this value is dropped.
pub(crate) struct EndpointProcess {
    channel: Channel,
    to: Box<dyn Write + Send>,
    from: Option<ReportReader>,
    /// Way to the peer, if only ssh reaches it.
    tunnel: Option<Box<SshTunnel>>,
}

/// Reader of an endpoint's reports.
type ReportReader = BufReader<Box<dyn Read + Send>>;

/// Channel to an endpoint.
#[derive(Debug)]
enum Channel {
    /// Pipes of a child process: the endpoint itself, or ssh.
    Child(Child),
    /// TLS connection to a site, which runs the endpoint.
    Site(SharedTlsStream),
}

impl EndpointProcess {
    /// Starts an endpoint on `host`, or locally.
    pub(crate) fn start(host: Option<&Host>, config: &Config, keys: &Keyring) -> Result<Self> {
        let (mut process, stderr_end) = match host {
            None => Self::spawn(&mut Command::new(std::env::current_exe()?)),
            Some(Host::Ssh(host)) => {
                let mut ssh = ssh_command(&config.ssh);
                ssh.args(["--", host, &config.remote_program]);
                Self::spawn(ssh.stderr(Stdio::piped()))
            }
            Some(Host::Site { address, export }) => {
                let token = keys.token(address).context("no token")?;
                Ok((Self::at_site(client::open(address, export, token)?), None))
            }
        }?;
        process.await_greeting(host, stderr_end)?;
        Ok(process)
    }

    /// Returns the address at which the site was reached, or the host by ssh if ssh connects to it directly.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        match &self.channel {
            Channel::Site(tls) => Some(tls.peer()),
            Channel::Child(ssh) => {
                let mut sockets = process_sockets::tcp(ssh.id(), |_| true);
                let peer = sockets.find_map(|socket| TcpStream::from(socket).peer_addr().ok())?;
                Some(peer.ip().to_canonical())
            }
        }
    }

    /// Keeps the way to the peer until the endpoint's end.
    pub(super) fn keep_tunnel(&mut self, tunnel: Option<SshTunnel>) {
        self.tunnel = tunnel.map(Box::new);
    }

    /// Creates the handle of an endpoint at a site.
    fn at_site(tls: SharedTlsStream) -> Self {
        Self {
            to: Box::new(tls.clone()),
            from: Some(BufReader::new(Box::new(tls.clone()))),
            tunnel: None,
            channel: Channel::Site(tls),
        }
    }

    /// Starts a child process that is, or connects to, an endpoint.
    fn spawn(command: &mut Command) -> Result<(Self, Option<StderrEnd>)> {
        command.args(["copy", "--end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        let mut child =
            child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let stderr_end = child.stderr.take().map(print_lines).transpose()?;
        let process = Self {
            channel: Channel::Child(child),
            to: Box::new(to.context("no pipe")?),
            from: Some(BufReader::new(Box::new(from.context("no pipe")?))),
            tunnel: None,
        };
        Ok((process, stderr_end))
    }

    /// Reads up to the greeting, and skips the output of a login.
    fn await_greeting(&mut self, host: Option<&Host>, stderr_end: Option<StderrEnd>) -> Result<()> {
        let silence = match (&self.channel, host) {
            (Channel::Child(ssh), Some(host)) => {
                Some(AnswerTimeout::watch(host.to_string(), ssh.id())?)
            }
            _ => None,
        };
        let from = self.from.as_mut().context("it reports elsewhere")?;
        let (mut from, mut login_output) = (from.take(LOGIN_OUTPUT_MAX), Vec::new());
        loop {
            let line_start = login_output.len();
            if from.read_until(b'\n', &mut login_output)? == 0 {
                break;
            }
            let line = &login_output[line_start..];
            if line.ends_with(GREETING) {
                return Ok(());
            }
            if line.ends_with(b"\r\n") && line.trim_ascii_end().ends_with(GREETING.trim_ascii_end())
            {
                return Err(Refusal::usage(format!(
                    "{} gives longhaul a terminal, which changes what is sent: no -t and no RequestTTY in --ssh",
                    host_name(host)
                )));
            }
        }
        if silence.is_some_and(|silence| silence.is_over()) {
            bail!(
                "{} has not answered for {} minutes",
                host_name(host),
                SILENCE_MAX.as_secs() / 60
            );
        }
        if let Some(stderr_end) = stderr_end {
            let _ended_or_timeout = stderr_end.recv_timeout(STDERR_TIMEOUT);
        }
        let name = host_name(host);
        if self.exit_code() == Some(SSH_FAILED) {
            bail!("cannot reach {name}: ssh failed, see its message above");
        }
        let text = String::from_utf8_lossy(&login_output);
        bail!(
            "no longhaul answers on {name} (--remote-program sets its path there){}",
            match text.trim() {
                "" => String::new(),
                text => format!(": {}", escape(text.lines().last().unwrap_or_default())),
            }
        );
    }

    /// Returns the exit code of the child process; `None` if it is still running, or was killed.
    fn exit_code(&mut self) -> Option<i32> {
        let Channel::Child(child) = &mut self.channel else {
            return None;
        };
        let deadline = Instant::now() + EXIT_TIMEOUT;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(EXIT_POLL_INTERVAL),
                status => return status.ok()??.code(),
            }
        }
    }

    /// Receives the first message of the endpoint; `None` after its end.
    pub(super) fn receive_hello(&mut self, host: Option<&Host>) -> Result<Option<Hello>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Hello::read(from, host_name(host))
    }

    /// Receives the next report; `None` after the end of the endpoint.
    pub(crate) fn receive_report(&mut self) -> Result<Option<Report>> {
        let from = self.from.as_mut().context("it reports elsewhere")?;
        Ok(message::read(from)?.map(Report::escape_texts))
    }

    /// Sends a message: a [`crate::protocol::control::Begin`], a later [`crate::protocol::control::Rendezvous`], or a
    /// [`crate::protocol::control::ControlMsg`].
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let sent = message::write(&mut self.to, message).and_then(|()| Ok(self.to.flush()?));
        sent.with_context(|| format!("an endpoint exited; {LOG_HINT}"))
    }

    /// Forwards all further reports to a channel, and `None` at the end of the endpoint.
    pub(crate) fn forward_reports(
        &mut self,
        role: Role,
        to: Sender<(Role, Option<Report>)>,
    ) -> Result<()> {
        let mut from = self.from.take().context("it reports elsewhere")?;
        threads::spawn(move || {
            loop {
                // An unreadable report counts as the end.
                let report = message::read(&mut from).unwrap_or_default();
                let report = report.map(Report::escape_texts);
                let ended = report.is_none();
                if to.send((role, report)).is_err() || ended {
                    return;
                }
            }
        })?;
        Ok(())
    }
}

/// Watch over a host that has not answered yet. ssh may wait for a password, and a login for anything.
struct AnswerTimeout {
    is_over: Arc<AtomicBool>,
    /// Its end is the end of the watch.
    _watched: Sender<()>,
}

impl AnswerTimeout {
    /// Prints a line after [`SILENCE_NOTED`], and kills the process after [`SILENCE_MAX`].
    fn watch(host: String, process: u32) -> Result<Self> {
        let (watched, answer) = channel::<()>();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        threads::spawn(move || {
            let is_silent = |time| answer.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if !is_silent(SILENCE_NOTED) {
                return;
            }
            errln!(
                "longhaul: {host} has not answered for {} s: ssh, or the login there, may wait for something",
                SILENCE_NOTED.as_secs()
            );
            if is_silent(SILENCE_MAX.saturating_sub(SILENCE_NOTED)) {
                over.store(true, Relaxed);
                if let Some(process) = Pid::from_raw(process.cast_signed()) {
                    // It may have ended.
                    let _ = kill_process(process, Signal::KILL);
                }
            }
        })?;
        Ok(Self {
            is_over,
            _watched: watched,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// Returns the name of a host for messages.
pub(super) fn host_name(host: Option<&Host>) -> &dyn Display {
    match host {
        Some(host) => host,
        None => &"this machine",
    }
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        match &mut self.channel {
            Channel::Child(child) => {
                // The process may have ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Channel::Site(tls) => tls.shutdown(),
        }
    }
}
