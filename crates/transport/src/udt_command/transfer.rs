// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer of one file over one connection. A received file is complete, or the transfer fails: UDT distinguishes a
//! close from a failure.

use super::port::connection_error;
use super::{
    config::{ReceiveConfig, SendConfig},
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

/// Bytes per read or write.
const BUFFER_LEN: usize = 1 << 18;

/// Time within which the peer must confirm the shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn send(config: &SendConfig) -> Result<()> {
    let mut file = open(&config.file)?;
    let socket = config.port.bind_for(config.to)?;
    let timer = TransferTimer::start();
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
    let stats = timer.stats(bytes, &hasher, Some(&stream));
    outln!("{}", result_line(&stats, config.json)?);
    Ok(())
}

pub(super) async fn receive(config: &ReceiveConfig) -> Result<()> {
    let is_file = config.file != Path::new("-");
    let mut signals = is_file.then(TerminationSignals::listen).transpose()?;
    let to = Destination::create(&config.file)?;
    let socket = config.port.bind(config.listen)?;
    socket.listen();
    errln!("longhaul udt: listening at {}", socket.local_addr());
    let mut stream = tokio::select! {
        accepted = socket.accept() => accepted?,
        () = TerminationSignals::wait(&mut signals) => bail!("interrupted: no connection came"),
    };
    // Only one connection is accepted.
    drop(socket);
    let timer = TransferTimer::start();
    let received = tokio::select! {
        received = to.receive(&mut stream) => received,
        () = TerminationSignals::wait(&mut signals) => Err(anyhow!("interrupted: the received data is discarded")),
    };
    if received.is_err() {
        // Without the shutdown the peer would wait for its idle timeout.
        let _shutdown = tokio::time::timeout(SHUTDOWN_TIMEOUT, stream.shutdown()).await;
    }
    let (bytes, hasher) = received?;
    let stats = timer.stats(bytes, &hasher, None);
    let line = result_line(&stats, config.json)?;
    if is_file {
        outln!("{line}");
    } else {
        errln!("{line}");
    }
    Ok(())
}

/// Returns the result as a line for people, or as JSON.
fn result_line(stats: &TransferStats, json: bool) -> Result<String> {
    if json {
        Ok(serde_json::to_string(stats)?)
    } else {
        Ok(stats.to_string())
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() {
            Err(io::ErrorKind::IsADirectory.into())
        } else {
            Ok(file)
        }
    });
    let file = opened.map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// Returns the kind of a path that is not a regular file, for the error message.
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

/// Returns the message of an error of `tempfile` without the name of the temporary file.
fn without_path(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at path ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

/// Destination of a received file.
enum Destination<'a> {
    Stdout,
    /// Temporary file in the same directory, renamed when it is complete.
    File(NamedTempFile, &'a Path),
}

impl<'a> Destination<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // The finished file replaces the previous one of that name, but never a device, even through a symbolic link.
        if let Some(what) = path
            .metadata()
            .ok()
            .and_then(|there| special_file_kind(there.file_type()))
        {
            return Err(Refusal::usage(format!("{}: is {what}", path.display())));
        }
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        // The mode is that of any new file, subject to the umask.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let file = tempfile::Builder::new()
            .prefix(".longhaul-")
            .suffix(".udt")
            .permissions(mode)
            .tempfile_in(directory.unwrap_or(Path::new(".")));
        let file = file.map_err(|error| {
            let (path, reason) = (path.display(), without_path(&error));
            Refusal::usage(format!("{path}: {reason}"))
        })?;
        Ok(Self::File(file, path))
    }

    async fn receive(mut self, from: &mut Stream) -> Result<(u64, blake3::Hasher)> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER_LEN];
        let mut bytes = 0;
        loop {
            let length = from.read(&mut buffer).await;
            let length = length.context("the connection broke: the received data is discarded")?;
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
            Self::File(file, path) => {
                let written = file.as_file_mut().write_all(bytes);
                written.with_context(|| path_text(path))
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout => Ok(io::stdout().flush()?),
            Self::File(file, path) => {
                file.as_file().sync_all().with_context(|| path_text(path))?;
                let named = file.persist(path).map_err(|error| error.error);
                named.with_context(|| path_text(path))?;
                Ok(())
            }
        }
    }
}

/// Start of a transfer, in elapsed time and in CPU time.
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

    fn stats(&self, bytes: u64, hasher: &blake3::Hasher, sender: Option<&Stream>) -> TransferStats {
        let mut stats = TransferStats::new(
            bytes,
            self.started_at.elapsed(),
            process_cpu_time() - self.cpu,
        );
        if let Some(report) = sender.and_then(Stream::stats) {
            stats.add_connection(&report);
        }
        stats.blake3 = Some(hasher.finalize().to_string());
        stats
    }
}
