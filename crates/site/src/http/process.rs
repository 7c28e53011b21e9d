// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process that serves an HTTP listener, and its supervision by the site.
//!
//! A process that ends interrupts only its own requests in progress. The listener stays open in the site, where
//! clients wait for the next process. A process costs some 10 MB.

use super::server::HttpServer;
use crate::{
    config::{Config, own_program},
    http_args::Scheme,
    listener::accept::{ShutdownSignal, ShutdownTrigger, accept},
    mirror::ChangeNotifier,
    record::Record,
    record_writer::RecordWriter,
};
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal};
use std::{
    io::Write,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, timeout},
};

/// Shortest and longest delay before a restart. A process that has served for the longest delay has failed at a
/// request. One that ended sooner may be unable to serve at all, so the delay grows.
const RESTART_BACKOFF_MIN: Duration = Duration::from_millis(100);
const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Longest time for a process to end when the site does.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Part of that time for a COPY, DELETE or MOVE in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);

/// Serves the listener that is standard input, until the site stops this process or ends. Records go to standard
/// output as JSON.
pub(crate) fn run(config: Config, scheme: Scheme) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // Detects a site that ended before the death signal was set: nobody reads then.
    std::io::stdout().write_all(b"\n").context("no site")?;
    let _ = longhaul_linux::descriptors::raise_limit();
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    let server = Arc::new(HttpServer::new(config, scheme)?);
    server.remove_leftovers();
    let runtime = longhaul_command::event_loop::current_thread()?;
    let served = runtime.block_on(serve(listener.into(), server));
    // Operations that have begun are finished without their connection, on their own threads.
    runtime.shutdown_timeout(DRAIN_TIMEOUT);
    served
}

async fn serve(listener: TcpListener, server: Arc<HttpServer>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut terminate = signal(SignalKind::terminate())?;
    // A terminal sends SIGINT to all processes. The site decides when to stop.
    let _interrupt = signal(SignalKind::interrupt())?;
    let shutdown = ShutdownTrigger::default();
    let signal = shutdown.subscribe();
    let accepted = accept(listener, shutdown.subscribe(), move |socket, client| {
        server.clone().serve_client(socket, client, signal.clone())
    });
    let ended = async {
        terminate.recv().await;
        shutdown.trigger();
    };
    tokio::join!(accepted, ended);
    Ok(())
}

/// Runs a process for the listener, and restarts it when it ends, until the site stops.
pub(crate) async fn supervise(
    listener: tokio::net::TcpListener,
    scheme: Scheme,
    notifier: Arc<ChangeNotifier>,
    records: RecordWriter,
    mut shutdown: ShutdownSignal,
) {
    let mut backoff = RESTART_BACKOFF_MIN;
    loop {
        let begin = Instant::now();
        let served = run_process(&listener, scheme, &notifier, records, &mut shutdown).await;
        let reason = match served {
            Ok(None) => return,
            Ok(Some(reason)) => reason,
            Err(error) => format!("{error:#}"),
        };
        let listener = scheme.to_string();
        records.write(&Record::HttpExited { listener, reason });
        backoff = if begin.elapsed() >= RESTART_BACKOFF_MAX {
            RESTART_BACKOFF_MIN
        } else {
            (backoff * 2).min(RESTART_BACKOFF_MAX)
        };
        tokio::select! {
            () = sleep(backoff) => {}
            () = shutdown.received() => return,
        }
    }
}

/// Runs one process. Returns the reason why it ended, or `None` if the site stops.
async fn run_process(
    listener: &tokio::net::TcpListener,
    scheme: Scheme,
    notifier: &ChangeNotifier,
    records: RecordWriter,
    shutdown: &mut ShutdownSignal,
) -> Result<Option<String>> {
    let mut child = spawn_process(listener, scheme)?;
    let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let relayed = async {
        while let Ok(Some(line)) = lines.next_line().await {
            forward_record(&line, notifier, records);
        }
    };
    tokio::pin!(relayed);
    tokio::select! {
        () = &mut relayed => return Ok(Some(child.wait().await?.to_string())),
        () = shutdown.received() => {}
    }
    terminate(&child);
    let ended = async {
        relayed.await;
        child.wait().await
    };
    // On a timeout the process is killed when dropped.
    let _ = timeout(EXIT_TIMEOUT, ended).await;
    Ok(None)
}

fn spawn_process(listener: &tokio::net::TcpListener, scheme: Scheme) -> Result<Child> {
    let socket: OwnedFd = listener.as_fd().try_clone_to_owned()?;
    own_program()
        .args(std::env::args_os().skip(1))
        .args(["--serve", &scheme.to_string()])
        .stdin(Stdio::from(socket))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a process")
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
}

/// Forwards a record of the process, and notifies mirrors of changes.
fn forward_record(line: &str, notifier: &ChangeNotifier, records: RecordWriter) {
    let Ok(record) = serde_json::from_str(line) else {
        return;
    };
    if let Record::Request {
        export,
        status: Some(200..=299),
        ..
    } = &record
    {
        notifier.notify(export);
    }
    records.write(&record);
}
