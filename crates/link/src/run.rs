// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of `longhaul link`, from its start to its end.

use super::{
    capture::CaptureOptions,
    config::{Config, Link},
    control,
    counters::Snapshot,
    display::Display,
    link::RunningLink,
};
use anyhow::{Context, Result};
use futures_util::future::select_all;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_linux::netns::Netns;
use longhaul_units::Time;
use std::{thread, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, channel},
};

/// A thread ends by itself only for this reason.
const INTERFACE_REMOVED: &str = "an interface of the link was removed";
/// Interval at which the link checks that its namespaces exist.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Snapshots that may wait for the terminal or the log: four seconds of eight links.
const SNAPSHOTS_MAX: usize = 64;

/// Runs `longhaul link` without a subcommand.
pub(super) fn run(config: &Config) -> Result<()> {
    let links = &config.links;
    let namespaces = map_links(links, |link| Ok((link.left.open()?, link.right.open()?)))?;
    if config.realtime && !can_use_realtime() {
        return Err(Refusal::unsupported(
            "--realtime needs CAP_SYS_NICE: run as root",
        ));
    }
    // Control sockets are bound before files are opened: a second link of the same name must not truncate the files of
    // the first.
    let sockets = map_links(links, |link| control::listen(&link.name))?;
    let captures = map_links(links, |link| {
        link.capture.as_ref().map(CaptureOptions::open).transpose()
    })?;
    let mut display = Display::open(config)?;
    for warning in config.warnings() {
        errln!("warning: {warning}");
    }
    for (link, (left, right)) in links.iter().zip(&namespaces) {
        warn_of_one_namespace(link, left, right);
    }
    let runtime = longhaul_command::event_loop::current_thread()?;
    let (snapshots, mut inbox) = channel(SNAPSHOTS_MAX);
    let mut running = Vec::new();
    for ((link, ends), capture) in links.iter().zip(namespaces).zip(captures) {
        running.push(RunningLink::start(link, ends, config, capture, &snapshots)?);
    }
    drop(snapshots);
    let ended = runtime.block_on(async {
        let controls = sockets.into_iter().zip(&running);
        let controls = controls.map(|(socket, link)| Box::pin(control::serve(socket, link)));
        // From here on a signal ends the link cleanly, so the link may report that it is ready.
        let signals = signals()?;
        errln!("ready");
        tokio::select! {
            () = wait_for_end(signals, config.duration) => Ok(()),
            ended = show_snapshots(&mut inbox, &running, &mut display) => ended,
            ended = watch_ends(&running) => ended,
            // A control socket serves forever; one that ends has an error.
            (failed, ..) = select_all(controls) => failed,
        }
    });
    ended.and(finish(running, &mut inbox, &mut display))
}

/// Warns if packets between the link's own addresses never pass it.
fn warn_of_one_namespace(link: &Link, left: &Netns, right: &Netns) {
    let have_addresses = !link.left.addresses.is_empty() && !link.right.addresses.is_empty();
    if have_addresses && left.is_same(right) {
        errln!(
            "warning: both ends of link {} are in one network namespace: the kernel delivers packets between their \
             addresses without the link; give each end its own (ip netns add NAME)",
            link.name
        );
    }
}

fn map_links<T>(links: &[Link], make: impl FnMut(&Link) -> Result<T>) -> Result<Vec<T>> {
    links.iter().map(make).collect()
}

/// Returns whether the process may use real-time priority, tested on a separate thread so that this one keeps its
/// priority.
fn can_use_realtime() -> bool {
    thread::spawn(longhaul_linux::wait::request_realtime_priority)
        .join()
        .unwrap_or(false)
}

/// Catches SIGINT and SIGTERM.
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

/// Shows each snapshot. Ends only when all threads have ended. Threads end by themselves only if a device was removed.
async fn show_snapshots(
    inbox: &mut Receiver<Snapshot>,
    links: &[RunningLink],
    display: &mut Display,
) -> Result<()> {
    while let Some(mut snapshot) = inbox.recv().await {
        record_snapshot(links, &mut snapshot);
        display.show(&snapshot)?;
    }
    anyhow::bail!(INTERFACE_REMOVED)
}

/// Fails when a namespace or an interface of a link was deleted: nobody can use the link any more, and its name would
/// stay taken.
async fn watch_ends(links: &[RunningLink]) -> Result<()> {
    let mut turns = tokio::time::interval(WATCH_INTERVAL);
    loop {
        turns.tick().await;
        if let Some(name) = links.iter().find_map(RunningLink::deleted_namespace) {
            anyhow::bail!("network namespace {name} was deleted");
        }
        if links.iter().any(RunningLink::has_ended) {
            anyhow::bail!(INTERFACE_REMOVED);
        }
    }
}

fn record_snapshot(links: &[RunningLink], snapshot: &mut Snapshot) {
    if let Some(link) = links.iter().find(|link| link.name() == snapshot.link) {
        link.record_snapshot(snapshot);
    }
}

/// Stops all threads, shows their last snapshots and the reports. All steps run even after an error; the first error is
/// returned.
fn finish(
    links: Vec<RunningLink>,
    inbox: &mut Receiver<Snapshot>,
    display: &mut Display,
) -> Result<()> {
    links.iter().for_each(RunningLink::stop);
    let mut result = Ok(());
    while let Some(mut snapshot) = inbox.blocking_recv() {
        record_snapshot(&links, &mut snapshot);
        result = result.and(display.show(&snapshot));
    }
    let results = links.into_iter().map(|link| finish_link(link, display));
    results.fold(result, Result::and)
}

/// Shows the reports of a link and finishes its capture.
fn finish_link(link: RunningLink, display: &mut Display) -> Result<()> {
    let (ended, reports, capture) = link.join();
    let result = reports.iter().map(|report| display.show_report(report));
    let result = result.fold(ended, Result::and);
    result.and(capture.map_or(Ok(()), |capture| capture.finish(&reports)))
}
