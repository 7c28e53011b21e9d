// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file over one connection. What arrives is whole or an error: UDT says when a connection was closed and when it
//! broke.

use super::port::connection_error;
use super::{
    config::{Receive, Send},
    termination_signals::TerminationSignals,
    transfer_stats::{TransferStats, process_cpu_time},
};
use anyhow::{Context as _, Result, anyhow, bail};
use longhaul_command::exit::Refusal;
use longhaul_command::{errln, outln};
use longhaul_udt::socket::Stream;
use std::{
    fs::{File, FileType},
    io::{self, Read, Write},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Read and written at once.
const BUFFER_LEN: usize = 1 << 18;

/// How long the other end may take to hear that nothing more is wanted.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn send(config: &Send) -> Result<()> {
    let mut file = open(&config.file)?;
    let socket = config.port.bind_for(config.to)?;
    let begun = TransferTimer::start();
    let connected = socket.connect(config.to).await;
    let mut stream = connected.map_err(|error| connection_error(config.to, &error))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_LEN];
    let mut bytes = 0;
    loop {
        let length = file
            .read(&mut buffer)
            .with_context(|| path_text(&config.file))?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        let sent = stream.write_all(&buffer[..length]).await;
        sent.map_err(|error| connection_error(config.to, &error))?;
        bytes += length as u64;
    }
    let closed = stream.shutdown().await;
    closed.map_err(|error| connection_error(config.to, &error))?;
    let figures = begun.stats(bytes, &hasher, Some(&stream));
    match config.json {
        true => outln!("{}", serde_json::to_string(&figures)?),
        false => errln!("longhaul udt: {figures}"),
    }
    Ok(())
}

pub(super) async fn receive(config: &Receive) -> Result<()> {
    let is_file = config.file != Path::new("-");
    let mut interruption = is_file.then(TerminationSignals::listen).transpose()?;
    let to = Destination::create(&config.file)?;
    let socket = config.port.bind(config.at)?;
    socket.listen();
    errln!("longhaul udt: listening at {}", socket.local_addr());
    let mut stream = tokio::select! {
        accepted = socket.accept() => accepted?,
        () = TerminationSignals::wait(&mut interruption) => bail!("interrupted: nothing came"),
    };
    // One is enough.
    drop(socket);
    let begun = TransferTimer::start();
    let filled = tokio::select! {
        filled = to.receive(&mut stream) => filled,
        () = TerminationSignals::wait(&mut interruption) => Err(anyhow!("interrupted: what came is thrown away")),
    };
    if filled.is_err() {
        // Else the other end would wait for its silence.
        let _told = tokio::time::timeout(SHUTDOWN_TIMEOUT, stream.shutdown()).await;
    }
    let (bytes, hasher) = filled?;
    let figures = begun.stats(bytes, &hasher, None);
    match (config.json, is_file) {
        (true, true) => outln!("{}", serde_json::to_string(&figures)?),
        // What was received is there.
        (true, false) => errln!("{}", serde_json::to_string(&figures)?),
        (false, _) => errln!("longhaul udt: {figures}"),
    }
    Ok(())
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    let file = opened.map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// What it is instead.
fn special_file_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe: - is standard output"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device: - is standard output"),
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Where it goes.
enum Destination<'a> {
    Stdout,
    /// Beside its name, until it is whole.
    File(NamedTempFile, &'a Path),
}

impl<'a> Destination<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // What has the name in the end takes the place of what had it before: never that of a device, wherever a link leads.
        if let Some(what) = path
            .metadata()
            .ok()
            .and_then(|there| special_file_kind(there.file_type()))
        {
            return Err(Refusal::usage(format!("{}: is {what}", path.display())));
        }
        let around = path
            .parent()
            .filter(|around| !around.as_os_str().is_empty());
        // As any new file, for whom the umask lets.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let file = tempfile::Builder::new()
            .permissions(mode)
            .tempfile_in(around.unwrap_or(Path::new(".")));
        let file = file.map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))?;
        Ok(Self::File(file, path))
    }

    async fn receive(mut self, from: &mut Stream) -> Result<(u64, blake3::Hasher)> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER_LEN];
        let mut bytes = 0;
        loop {
            let length = from.read(&mut buffer).await;
            let length = length.context("the connection broke: what came is thrown away")?;
            if length == 0 {
                break;
            }
            hasher.update(&buffer[..length]);
            self.write(&buffer[..length])?;
            bytes += length as u64;
        }
        self.finish()?;
        Ok((bytes, hasher))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout => io::stdout().write_all(bytes).context("standard output"),
            Self::File(file, path) => file.write_all(bytes).with_context(|| path_text(path)),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout => Ok(io::stdout().flush()?),
            Self::File(file, path) => {
                file.as_file().sync_all().with_context(|| path_text(path))?;
                file.persist(path).with_context(|| path_text(path))?;
                Ok(())
            }
        }
    }
}

/// When a transfer began.
struct TransferTimer {
    started_at: Instant,
    cpu: Duration,
}

impl TransferTimer {
    fn start() -> Self {
        Self {
            started_at: Instant::now(),
            cpu: process_cpu_time(),
        }
    }

    fn stats(&self, bytes: u64, hasher: &blake3::Hasher, sent: Option<&Stream>) -> TransferStats {
        let mut figures = TransferStats::new(
            bytes,
            self.started_at.elapsed(),
            process_cpu_time() - self.cpu,
        );
        if let Some(report) = sent.and_then(Stream::stats) {
            figures.add_connection(&report);
        }
        figures.blake3 = Some(hasher.finalize().to_string());
        figures
    }
}
