// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` from its start to its end: what it tells, and what ends it.

use super::{
    config::{Config, Link},
    control,
    counters::Snapshot,
    display::Display,
    link::RunningLink,
    tap::TapOptions,
};
use anyhow::{Context, Result};
use futures_util::future::select_all;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_units::Time;
use std::thread;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, channel},
};

/// Snapshots that may wait for the terminal or the log: four seconds of eight links.
const SNAPSHOTS_MAX: usize = 64;

/// `longhaul link` without a subcommand.
pub(super) fn run(config: &Config) -> Result<()> {
    let links = &config.links;
    let namespaces = map_links(links, |link| Ok((link.left.open()?, link.right.open()?)))?;
    if config.realtime && !can_use_realtime() {
        return Err(Refusal::unsupported(
            "--realtime needs CAP_SYS_NICE: run as root",
        ));
    }
    // First of all the names: a second link of that name must not empty the first one's files.
    let sockets = map_links(links, |link| control::listen(&link.name))?;
    let taps = map_links(links, |link| {
        link.tap.as_ref().map(TapOptions::open).transpose()
    })?;
    let mut display = Display::open(config)?;
    let runtime = longhaul_command::event_loop::current_thread()?;
    let (snapshots, mut inbox) = channel(SNAPSHOTS_MAX);
    let mut running = Vec::new();
    for ((link, ends), tap) in links.iter().zip(namespaces).zip(taps) {
        running.push(RunningLink::start(link, ends, config, tap, &snapshots)?);
    }
    drop(snapshots);
    let ended = runtime.block_on(async {
        let controls = sockets.into_iter().zip(&running);
        let controls = controls.map(|(socket, link)| Box::pin(control::serve(socket, link)));
        // From here on a signal ends the link as it should, so it may be said to be ready.
        let signals = signals()?;
        errln!("ready");
        tokio::select! {
            () = wait_for_end(signals, config.duration) => Ok(()),
            broken = show_snapshots(&mut inbox, &running, &mut display) => broken,
            // A control socket serves for ever; the first that does not says why.
            (refused, ..) = select_all(controls) => refused,
        }
    });
    ended.and(finish(running, &mut inbox, &mut display))
}

fn map_links<T>(links: &[Link], make: impl FnMut(&Link) -> Result<T>) -> Result<Vec<T>> {
    links.iter().map(make).collect()
}

/// Tried on a thread of its own, so that this one stays what it is.
fn can_use_realtime() -> bool {
    thread::spawn(longhaul_linux::wait::take_precedence)
        .join()
        .unwrap_or(false)
}

/// SIGINT and SIGTERM, which end nothing by themselves from now on.
fn signals() -> Result<[Signal; 2]> {
    let interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    Ok([interrupt, terminate])
}

async fn wait_for_end([mut interrupt, mut terminate]: [Signal; 2], duration: Option<Time>) {
    let over = tokio::time::sleep(duration.unwrap_or(Time::from_secs(1 << 31)).into());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = over => {}
    }
}

/// Tells of each snapshot. Ends only when all threads have, which they do by themselves only when
/// a device is gone.
async fn show_snapshots(
    inbox: &mut Receiver<Snapshot>,
    links: &[RunningLink],
    display: &mut Display,
) -> Result<()> {
    while let Some(snapshot) = inbox.recv().await {
        record_snapshot(links, &snapshot);
        display.show(&snapshot)?;
    }
    anyhow::bail!("an interface of the link was taken away")
}

fn record_snapshot(links: &[RunningLink], snapshot: &Snapshot) {
    if let Some(link) = links.iter().find(|link| link.name() == snapshot.link) {
        link.record_snapshot(snapshot);
    }
}

/// Stops all threads, takes their last snapshots and tells the result. The first error leaves out none of the rest.
fn finish(
    links: Vec<RunningLink>,
    inbox: &mut Receiver<Snapshot>,
    display: &mut Display,
) -> Result<()> {
    links.iter().for_each(RunningLink::stop);
    let mut told = Ok(());
    while let Some(snapshot) = inbox.blocking_recv() {
        record_snapshot(&links, &snapshot);
        told = told.and(display.show(&snapshot));
    }
    let ends = links.into_iter().map(|link| finish_link(link, display));
    ends.fold(told, Result::and)
}

/// Tells what came of a link, on all its ways.
fn finish_link(link: RunningLink, display: &mut Display) -> Result<()> {
    let (ended, checks, tap) = link.join();
    let told = checks.iter().map(|check| display.show_report(check));
    let told = told.fold(ended, Result::and);
    told.and(tap.map_or(Ok(()), |tap| tap.finish(&checks)))
}
