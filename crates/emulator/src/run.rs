// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link` from its start to its end: what it tells, and what ends it.

use super::{
    config::{Config, Link},
    control,
    counters::Snapshot,
    display::Display,
    link::Running,
    tap::Plan,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_command::note;
use longhaul_units::Time;
use std::thread;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{Receiver, channel},
};

/// Snapshots that may wait for the terminal or the log: four seconds of eight links.
const SNAPSHOTS_MAX: usize = 64;
/// `longhaul link` without a subcommand.
pub(super) fn run(config: &Config) -> Result<()> {
    let links = &config.links;
    let namespaces = each(links, |link| Ok((link.left.open()?, link.right.open()?)))?;
    if config.realtime && !may_take_precedence() {
        return Err(Refusal::unsupported(
            "--realtime needs CAP_SYS_NICE: run as root",
        ));
    }
    // First of all the names: a second link of that name must not empty the first one's files.
    let sockets = each(links, |link| control::listen(&link.name))?;
    let taps = each(links, |link| link.tap.as_ref().map(Plan::open).transpose())?;
    let mut display = Display::open(config)?;
    let runtime = longhaul_command::event_loop::of_this_thread()?;
    let (snapshots, mut inbox) = channel(SNAPSHOTS_MAX);
    let mut running = Vec::new();
    for ((link, ends), tap) in links.iter().zip(namespaces).zip(taps) {
        running.push(Running::start(link, ends, config, tap, &snapshots)?);
    }
    drop(snapshots);
    note!("ready");
    runtime.block_on(async {
        let controls = sockets
            .into_iter()
            .zip(&running)
            .map(|(s, link)| control::serve(s, link));
        tokio::select! {
            ended = until_told(config.duration) => ended,
            broken = watch(&mut inbox, &running, &mut display) => broken,
            refused = all(controls) => refused,
        }
    })?;
    finish(running, &mut inbox, &mut display)
}

fn each<T>(links: &[Link], make: impl FnMut(&Link) -> Result<T>) -> Result<Vec<T>> {
    links.iter().map(make).collect()
}

/// Tried on a thread of its own, so that this one stays what it is.
fn may_take_precedence() -> bool {
    thread::spawn(longhaul_linux::wait::take_precedence)
        .join()
        .unwrap_or(false)
}

async fn all(controls: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    let controls: Vec<_> = controls.map(Box::pin).collect();
    // A control socket serves for ever; the first that does not says why.
    let mut controls = controls;
    std::future::poll_fn(|context| {
        for control in &mut controls {
            if let std::task::Poll::Ready(ended) = control.as_mut().poll(context) {
                return std::task::Poll::Ready(ended);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

async fn until_told(duration: Option<Time>) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let over = tokio::time::sleep(duration.unwrap_or(Time::from_secs(1 << 31)).into());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = over => {}
    }
    Ok(())
}

/// Tells of each snapshot. Ends only when all threads have, which they do by themselves only when
/// a device is gone.
async fn watch(
    inbox: &mut Receiver<Snapshot>,
    links: &[Running],
    display: &mut Display,
) -> Result<()> {
    while let Some(snapshot) = inbox.recv().await {
        note(links, &snapshot);
        display.show(&snapshot)?;
    }
    anyhow::bail!("an interface of the link was taken away")
}

fn note(links: &[Running], snapshot: &Snapshot) {
    if let Some(link) = links.iter().find(|link| link.name() == snapshot.link) {
        link.note(snapshot);
    }
}

/// Stops all threads, takes their last snapshots and tells the result.
fn finish(
    links: Vec<Running>,
    inbox: &mut Receiver<Snapshot>,
    display: &mut Display,
) -> Result<()> {
    links.iter().for_each(Running::stop);
    while let Some(snapshot) = inbox.blocking_recv() {
        note(&links, &snapshot);
        display.show(&snapshot)?;
    }
    for link in links {
        let (checks, tap) = link.join()?;
        for check in &checks {
            display.conclude(check)?;
        }
        tap.map_or(Ok(()), |tap| tap.finish(&checks))?;
    }
    Ok(())
}
