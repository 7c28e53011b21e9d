// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap live`: shows the flows of an interface each second, on a terminal, in lines or as JSON.

mod args;
mod flow_sampler;
#[cfg_attr(
    not(feature = "tui"),
    allow(dead_code, reason = "only the screen has other keys for sorting")
)]
mod history;
mod interface_sampler;
mod lines;
#[cfg(feature = "tui")]
mod screen;
#[cfg(feature = "tui")]
mod terminal;
#[cfg(not(feature = "tui"))]
mod without_tui;

use super::capture::{InterfaceRing, Signals, Source};
use anyhow::{Context, Result};
pub(super) use args::Args;
use flow_sampler::Snapshot;
use history::History;
use interface_sampler::InterfaceSampler;
use longhaul_linux::{clock, wait::Waker};
use longhaul_units::Time;
use std::{
    io::{self, IsTerminal, Write, stdout},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Maximum number of snapshots of all interfaces that wait for display.
const SNAPSHOTS_MAX: usize = 64;
/// Poll interval for keys and for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Configuration of the command, validated.
struct Config {
    source: Source,
    /// Prints records to standard output as JSON lines.
    json: bool,
    /// Time after which the command stops, if limited.
    duration: Option<Time>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let source = &config.source;
    let samplers = Samplers::start(source.open()?, config.duration)?;
    let outcome = if config.json {
        samplers.print(|snapshot, out| lines::write_json(snapshot, &source.interfaces, out))
    } else if stdout().is_terminal() {
        samplers.show(source)
    } else {
        let mut history = History::new(&source.interfaces);
        samplers.print(|snapshot, out| {
            history.add(snapshot.clone());
            lines::write_plain(snapshot, &history, out)
        })
    };
    let sampler_result = samplers.stop();
    outcome.and(sampler_result)
}

/// Running samplers, one thread for each interface.
struct Samplers {
    snapshots: Receiver<Snapshot>,
    stop_bells: Vec<Waker>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// True after a signal to stop.
    stop_requested: Arc<AtomicBool>,
    until: Option<Time>,
}

impl Samplers {
    fn start(rings: Vec<InterfaceRing>, duration: Option<Time>) -> Result<Self> {
        let (sender, snapshots) = sync_channel(SNAPSHOTS_MAX);
        let mut samplers = Self {
            snapshots,
            stop_bells: Vec::new(),
            threads: Vec::new(),
            stop_requested: stop_flag()?,
            until: duration.map(|duration| clock::now() + duration),
        };
        for (number, ring) in rings.into_iter().enumerate() {
            samplers.spawn_sampler(ring, number, sender.clone())?;
        }
        Ok(samplers)
    }

    fn spawn_sampler(
        &mut self,
        ring: InterfaceRing,
        number: usize,
        snapshots: SyncSender<Snapshot>,
    ) -> Result<()> {
        let bell = Waker::new()?;
        self.stop_bells.push(bell.clone());
        let name = format!("tap {}", ring.interface);
        let sampler = InterfaceSampler::new(ring, number, snapshots, bell);
        let thread = thread::Builder::new().name(name).spawn(|| sampler.run())?;
        self.threads.push(thread);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.stop_requested.load(Relaxed) || self.until.is_some_and(|until| clock::now() >= until)
    }

    /// Returns the next snapshot, if one arrives in time.
    ///
    /// # Errors
    /// A sampler thread has ended.
    fn next(&self, timeout: Duration) -> Result<Option<Snapshot>, RecvTimeoutError> {
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(RecvTimeoutError::Disconnected);
        }
        match self.snapshots.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Writes snapshots to standard output until the end, or until the reader closes the pipe.
    fn print(
        &self,
        mut write: impl FnMut(&Snapshot, &mut io::StdoutLock<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = stdout().lock();
        while !self.is_finished() {
            let Ok(snapshot) = self.next(POLL_INTERVAL) else {
                return Ok(());
            };
            match snapshot.map_or(Ok(()), |snapshot| write(&snapshot, &mut out)) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                outcome => outcome.context("cannot write to standard output")?,
            }
        }
        Ok(out.flush()?)
    }

    /// Stops all samplers and returns the first error.
    fn stop(self) -> Result<()> {
        self.stop_bells.iter().try_for_each(Waker::wake)?;
        // Wakes a sampler that waits for a free place in the channel: its send fails.
        drop(self.snapshots);
        let mut join_results = self.threads.into_iter().map(JoinHandle::join);
        join_results
            .try_for_each(|result| result.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
    }
}

/// Returns a flag that a signal to stop sets, so that the terminal can be restored first.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&flag);
    let runtime = longhaul_command::event_loop::current_thread()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(signals.wait());
            setter.store(true, Relaxed);
        })?;
    Ok(flag)
}
