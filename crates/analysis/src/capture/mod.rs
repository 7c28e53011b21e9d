// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap capture`: headers of an interface's packets into pcapng, a thread for each interface.

mod args;
mod display;
mod output;
mod recorder;
mod source;
mod tally;

use anyhow::{Context, Result};
pub(super) use args::{Args, SourceArgs};
use display::{Display, Summary};
use longhaul_command::{note, say};
use longhaul_linux::{clock, wait::Bell};
use longhaul_packet::capture::writer::{self, Interface, Origin};
use longhaul_units::Time;
use output::{Destination, Output};
use recorder::{Budget, Recorder, Shared};
pub(super) use source::{Source, Tap};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tally::Tally;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, Sender, channel},
    time::{MissedTickBehavior, interval, sleep},
};

/// A capture, checked.
struct Config {
    source: Source,
    destination: Destination,
    /// Packets after which it ends, if it does.
    count: Option<u64>,
    /// Time after which it ends, if it does.
    duration: Option<Time>,
    /// Whether what was captured goes to standard output as JSON.
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let (duration, json) = (config.duration, config.json);
    let taps = config.source.open()?;
    let runtime = longhaul_command::event_loop::of_this_thread()?;
    // Before anybody can know that it captures, and end it.
    let signals = runtime.block_on(async { Signals::listen() })?;
    let mut capture = Capture::start(config, taps)?;
    runtime.block_on(capture.attend(signals, duration))?;
    capture.finish(json)
}

/// A capture at work.
struct Capture {
    shared: Shared,
    interfaces: Vec<(String, &'static str)>,
    bells: Vec<Bell>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Closes when the last thread has ended; a message is the end of one.
    ends: Receiver<()>,
    began: Time,
    display: Display,
}

impl Capture {
    fn start(config: Config, taps: Vec<Tap>) -> Result<Self> {
        let source = &config.source;
        let tallies: Arc<[Tally]> = taps.iter().map(|_| Tally::default()).collect();
        let output = Output::create(
            config.destination,
            header(source, &taps),
            Arc::clone(&tallies),
        )?;
        let (ended, ends) = channel(taps.len().max(1));
        let mut capture = Self {
            shared: Shared {
                output: Arc::new(Mutex::new(output)),
                tallies,
                budget: Arc::new(Budget::of(config.count)),
            },
            interfaces: taps
                .iter()
                .map(|tap| (tap.interface.clone(), display::name_of(tap.clock)))
                .collect(),
            bells: Vec::new(),
            threads: Vec::new(),
            ends,
            began: clock::now(),
            display: Display::open(),
        };
        for (number, tap) in (0..).zip(taps) {
            capture.record(tap, number, source.snaplen, ended.clone())?;
        }
        note!("capturing on {}", source.interfaces.join(", "));
        Ok(capture)
    }

    fn record(&mut self, tap: Tap, number: u32, snaplen: u32, ended: Sender<()>) -> Result<()> {
        let bell = Bell::new()?;
        self.bells.push(bell.clone());
        let name = format!("tap {}", tap.interface);
        let recorder = Recorder::of(tap, number, snaplen, self.shared.clone(), bell);
        let work = move || {
            let outcome = recorder.run();
            // Nobody listens any more if the capture was given up.
            let _ = ended.try_send(());
            outcome
        };
        let thread = thread::Builder::new().name(name).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Until somebody or something ends it, and all that was captured is written.
    async fn attend(&mut self, mut signals: Signals, duration: Option<Time>) -> Result<()> {
        let over = sleep(duration.unwrap_or(Time::from_secs(1 << 31)).into());
        tokio::pin!(over);
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        second.tick().await;
        loop {
            tokio::select! {
                () = signals.next() => break,
                () = &mut over => break,
                _ = self.ends.recv() => break,
                _ = second.tick() => {
                    let summary = self.summary(Vec::new());
                    self.display.show(&summary);
                }
            }
        }
        self.bells.iter().try_for_each(Bell::ring)?;
        tokio::select! {
            // A reader of standard output that takes nothing any more must not hold us.
            () = signals.next() => anyhow::bail!("given up before all was written"),
            () = async { while self.ends.recv().await.is_some() {} } => Ok(()),
        }
    }

    /// The first thing that went wrong, after all files are complete.
    fn finish(mut self, json: bool) -> Result<()> {
        let threads = self.threads.drain(..).map(JoinHandle::join);
        let outcomes: Vec<Result<()>> = threads
            .map(|joined| joined.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect();
        let finished = self.output().finish();
        self.display.clear();
        let mut outcome = outcomes.into_iter().collect::<Result<()>>();
        match finished {
            Ok((_, files)) => self.tell(files, json)?,
            // On a full disk the counts have no room either: the first error is the one to know.
            Err(error) => outcome = outcome.and(Err(error)),
        }
        outcome
    }

    fn tell(&self, files: Vec<String>, json: bool) -> Result<()> {
        let summary = self.summary(files);
        if json {
            say!("{}", serde_json::to_string(&summary)?);
        } else {
            note!("{summary}");
        }
        Ok(())
    }

    fn summary(&self, files: Vec<String>) -> Summary {
        let counted = self.interfaces.iter().zip(self.shared.tallies.iter());
        Summary {
            seconds: clock::now().since(self.began).as_secs_f64(),
            files,
            bytes: self.output().bytes(),
            interfaces: counted
                .map(|((name, time_stamps), tally)| display::Interface {
                    name: name.clone(),
                    time_stamps,
                    counted: tally.now(),
                })
                .collect(),
        }
    }

    fn output(&self) -> std::sync::MutexGuard<'_, Output> {
        let output = self.shared.output.lock();
        output.unwrap_or_else(PoisonError::into_inner)
    }
}

/// With what each file begins.
fn header(source: &Source, taps: &[Tap]) -> Vec<u8> {
    let kernel = rustix::system::uname();
    let system = format!("Linux {}", kernel.release().to_string_lossy());
    let mut header = Vec::new();
    let origin = Origin {
        hardware: &kernel.machine().to_string_lossy(),
        system: &system,
        application: &format!("longhaul {}", longhaul_command::release()),
    };
    writer::section(&mut header, &origin);
    for tap in taps {
        let interface = Interface {
            name: &tap.interface,
            link_type: tap.ring.link_type(),
            snaplen: source.snaplen,
            filter: &source.filter,
        };
        writer::interface(&mut header, &interface);
    }
    header
}

/// What asks a capture to end.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    pub(super) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
