// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap live`: flows of an interface each second, on a terminal, in lines or as JSON.

mod args;
mod board;
mod lines;
mod look;
mod screen;
mod watcher;

use super::capture::{Signals, Source, Tap};
use anyhow::{Context, Result};
pub(super) use args::Args;
use board::Board;
use longhaul_linux::{clock, wait::Bell};
use longhaul_units::Time;
use look::Look;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::Screen;
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
use watcher::Watcher;

/// Seconds of all interfaces that may wait to be shown.
const LOOKS_MAX: usize = 64;
/// How long a key or the end may go unnoticed.
const GLANCE: Duration = Duration::from_millis(100);

/// The command, checked.
struct Config {
    source: Source,
    /// Whether records go to standard output as JSON lines.
    json: bool,
    /// Time after which it ends, if it does.
    duration: Option<Time>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let source = &config.source;
    let live = Live::start(source.open()?, config.duration)?;
    let outcome = if config.json {
        live.print(|look, out| lines::json(look, &source.interfaces, out))
    } else if stdout().is_terminal() {
        live.show(source)
    } else {
        let mut board = Board::new(&source.interfaces);
        live.print(|look, out| {
            board.take(look.clone());
            lines::plain(look, &board, out)
        })
    };
    let watched = live.end();
    outcome.and(watched)
}

/// Watchers at work.
struct Live {
    looks: Receiver<Look>,
    bells: Vec<Bell>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// A signal asks for the end.
    told: Arc<AtomicBool>,
    until: Option<Time>,
}

impl Live {
    fn start(taps: Vec<Tap>, duration: Option<Time>) -> Result<Self> {
        let (sender, looks) = sync_channel(LOOKS_MAX);
        let mut live = Self {
            looks,
            bells: Vec::new(),
            threads: Vec::new(),
            told: listen()?,
            until: duration.map(|duration| clock::now() + duration),
        };
        for (number, tap) in taps.into_iter().enumerate() {
            live.watch(tap, number, sender.clone())?;
        }
        Ok(live)
    }

    fn watch(&mut self, tap: Tap, number: usize, looks: SyncSender<Look>) -> Result<()> {
        let bell = Bell::new()?;
        self.bells.push(bell.clone());
        let name = format!("tap {}", tap.interface);
        let watcher = Watcher::of(tap, number, looks, bell);
        let thread = thread::Builder::new().name(name).spawn(|| watcher.run())?;
        self.threads.push(thread);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.told.load(Relaxed) || self.until.is_some_and(|until| clock::now() >= until)
    }

    /// The next look, if one comes soon; an error once a watcher has ended.
    fn next(&self, patience: Duration) -> Result<Option<Look>, RecvTimeoutError> {
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(RecvTimeoutError::Disconnected);
        }
        match self.looks.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Look after look to standard output. A reader that has had enough ends it.
    fn print(
        &self,
        mut write: impl FnMut(&Look, &mut io::StdoutLock<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = stdout().lock();
        while !self.is_over() {
            let Ok(look) = self.next(GLANCE) else {
                return Ok(());
            };
            match look.map_or(Ok(()), |look| write(&look, &mut out)) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                outcome => outcome.context("cannot write to standard output")?,
            }
        }
        Ok(out.flush()?)
    }

    fn show(&self, source: &Source) -> Result<()> {
        let mut screen = Screen::new(&source.interfaces, &source.filter);
        let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
        let outcome = self.draw(&mut screen, &mut terminal);
        ratatui::restore();
        outcome
    }

    fn draw(&self, screen: &mut Screen, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
        while !self.is_over() {
            terminal.draw(|frame| screen.draw(frame))?;
            if event::poll(GLANCE)? && !answer(screen, &event::read()?) {
                return Ok(());
            }
            loop {
                match self.next(Duration::ZERO) {
                    Ok(Some(look)) => screen.take(look),
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Ends all watchers; what went wrong with the first that did.
    fn end(self) -> Result<()> {
        self.bells.iter().try_for_each(Bell::ring)?;
        // A watcher that waits for room to tell something finds nobody there.
        drop(self.looks);
        let mut joined = self.threads.into_iter().map(JoinHandle::join);
        joined
            .try_for_each(|watched| watched.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
    }
}

/// A new size needs no answer: the next picture has it.
fn answer(screen: &mut Screen, event: &Event) -> bool {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => screen.key(*key),
        _ => true,
    }
}

/// Becomes true when a signal asks for the end, so that the terminal can be put right first.
fn listen() -> Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let runtime = longhaul_command::event_loop::of_this_thread()?;
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(signals.next());
            tell.store(true, Relaxed);
        })?;
    Ok(told)
}
