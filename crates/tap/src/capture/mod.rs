// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap capture`: writes the headers of packets to pcapng, with a thread for each interface.

mod args;
mod counters;
mod display;
mod filter_expression;
mod output;
mod recorder;
mod source;

use anyhow::{Context, Result};
pub(super) use args::{Args, SourceArgs};
use counters::InterfaceCounters;
use display::{Display, Summary};
use longhaul_command::{errln, outln};
use longhaul_linux::{clock, wait::Waker};
use longhaul_packet::capture::writer::{self, Interface, SectionInfo};
use longhaul_units::Time;
use output::{Destination, Output};
use recorder::{Budget, Recorder, Shared};
pub(super) use source::{InterfaceRing, Source};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, Sender, channel},
    time::{MissedTickBehavior, interval, sleep},
};

/// Configuration of a capture, validated.
struct Config {
    source: Source,
    destination: Destination,
    /// Number of packets after which the capture stops, if limited.
    count: Option<u64>,
    /// Time after which the capture stops, if limited.
    duration: Option<Time>,
    /// Prints the summary to standard output as JSON.
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let (duration, json) = (config.duration, config.json);
    let rings = config.source.open()?;
    let runtime = longhaul_command::event_loop::current_thread()?;
    // Before the capture is announced, so that no signal is missed.
    let signals = runtime.block_on(async { Signals::new() })?;
    let mut capture = Capture::start(config, rings)?;
    runtime.block_on(capture.run_until_end(signals, duration))?;
    capture.finish(json)
}

/// Running capture.
struct Capture {
    shared: Shared,
    interfaces: Vec<(String, &'static str)>,
    stop_wakers: Vec<Waker>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Channel with a message for each thread that ended; closed when the last has ended.
    thread_ends: Receiver<()>,
    started_at: Time,
    display: Display,
}

impl Capture {
    fn start(config: Config, rings: Vec<InterfaceRing>) -> Result<Self> {
        let source = &config.source;
        let counters: Arc<[InterfaceCounters]> =
            rings.iter().map(|_| InterfaceCounters::default()).collect();
        let output = Output::create(
            config.destination,
            file_header(source, &rings),
            Arc::clone(&counters),
        )?;
        let (end_sender, ends) = channel(rings.len().max(1));
        let mut capture = Self {
            shared: Shared {
                output: Arc::new(Mutex::new(output)),
                counters,
                budget: Arc::new(Budget::new(config.count)),
            },
            interfaces: rings
                .iter()
                .map(|ring| (ring.interface.clone(), display::clock_name(ring.clock)))
                .collect(),
            stop_wakers: Vec::new(),
            threads: Vec::new(),
            thread_ends: ends,
            started_at: clock::now(),
            display: Display::new(),
        };
        for (number, ring) in (0..).zip(rings) {
            capture.start_recorder(ring, number, source.snaplen, end_sender.clone())?;
        }
        errln!("capturing on {}", source.interfaces.join(", "));
        Ok(capture)
    }

    fn start_recorder(
        &mut self,
        ring: InterfaceRing,
        number: u32,
        snaplen: u32,
        end_sender: Sender<()>,
    ) -> Result<()> {
        let bell = Waker::new()?;
        self.stop_wakers.push(bell.clone());
        let name = format!("tap {}", ring.interface);
        let recorder = Recorder::new(ring, number, snaplen, self.shared.clone(), bell);
        let work = move || {
            let outcome = recorder.run();
            // The receiver is dropped if the capture was abandoned.
            let _ = end_sender.try_send(());
            outcome
        };
        let thread = thread::Builder::new().name(name).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Runs until a signal, the duration or the end of a thread stops the capture and all packets are written.
    async fn run_until_end(&mut self, mut signals: Signals, duration: Option<Time>) -> Result<()> {
        let deadline = sleep(duration.unwrap_or(Time::from_secs(1 << 31)).into());
        tokio::pin!(deadline);
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        second.tick().await;
        loop {
            tokio::select! {
                () = signals.wait() => break,
                () = &mut deadline => break,
                _ = self.thread_ends.recv() => break,
                _ = second.tick() => {
                    let summary = self.summary(Vec::new());
                    self.display.show(&summary);
                }
            }
        }
        self.stop_wakers.iter().try_for_each(Waker::wake)?;
        tokio::select! {
            // A second signal stops the wait for a blocked reader of standard output.
            () = signals.wait() => anyhow::bail!("stopped before all packets were written"),
            () = async { while self.thread_ends.recv().await.is_some() {} } => Ok(()),
        }
    }

    /// Completes all files, then returns the first error.
    fn finish(mut self, json: bool) -> Result<()> {
        let threads = self.threads.drain(..).map(JoinHandle::join);
        let outcomes: Vec<Result<()>> = threads
            .map(|join_result| join_result.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect();
        let finished = self.output().finish();
        self.display.clear();
        let mut outcome = outcomes.into_iter().collect::<Result<()>>();
        match finished {
            Ok((_, files)) => self.print_summary(files, json)?,
            // On a full disk the counters cannot be written, either: the first error is the cause.
            Err(error) => outcome = outcome.and(Err(error)),
        }
        outcome
    }

    fn print_summary(&self, files: Vec<String>, json: bool) -> Result<()> {
        let summary = self.summary(files);
        if json {
            outln!("{}", serde_json::to_string(&summary)?);
        } else {
            errln!("{summary}");
        }
        Ok(())
    }

    fn summary(&self, files: Vec<String>) -> Summary {
        let interface_counters = self.interfaces.iter().zip(self.shared.counters.iter());
        Summary {
            seconds: clock::now().since(self.started_at).as_secs_f64(),
            files,
            bytes: self.output().bytes(),
            interfaces: interface_counters
                .map(|((name, timestamps), counters)| display::Interface {
                    name: name.clone(),
                    timestamps,
                    counters: counters.snapshot(),
                })
                .collect(),
        }
    }

    fn output(&self) -> std::sync::MutexGuard<'_, Output> {
        let output = self.shared.output.lock();
        output.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the blocks at the beginning of each file: section header and interface descriptions.
fn file_header(source: &Source, rings: &[InterfaceRing]) -> Vec<u8> {
    let kernel = rustix::system::uname();
    let system = format!("Linux {}", kernel.release().to_string_lossy());
    let mut header = Vec::new();
    let origin = SectionInfo {
        hardware: &kernel.machine().to_string_lossy(),
        system: &system,
        application: &format!("longhaul {}", longhaul_command::release()),
    };
    writer::section(&mut header, &origin);
    for ring in rings {
        let interface = Interface {
            name: &ring.interface,
            link_type: ring.ring.link_type(),
            snaplen: source.snaplen,
            filter: &source.filter,
        };
        writer::interface(&mut header, &interface);
    }
    header
}

/// Signals that stop a capture.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    pub(super) async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
