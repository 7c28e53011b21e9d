// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that serves a listener of HTTP, and the site's care for it.
//!
//! A process that ends takes the requests along that are under way, and nothing else: the listener stays with the site,
//! where clients wait for the next process. It costs some 10 MB.

use super::{claims, server::Http};
use crate::{
    config::{Config, SELF, Scheme},
    lines::Records,
    listener::accept::{Stop, Stopped, accept},
    mirror::News,
    record::Record,
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
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, timeout},
};

/// Until another process is started: after the first end, and at most. One that served for so long ended by a
/// request; one that did not may not be able to serve at all.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a process may take to end when the site does.
const FAREWELL: Duration = Duration::from_secs(10);

/// How much of that a COPY, DELETE or MOVE has that is under way.
const COMPLETION: Duration = Duration::from_secs(8);

/// Serves the listener that is standard input, until the site says that it is enough or is gone. What happens goes to
/// standard output, as JSON.
pub(crate) fn run(config: Config, scheme: Scheme) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // A site that was gone before that has left nobody who reads.
    std::io::stdout().write_all(b"\n").context("no site")?;
    let _ = longhaul_linux::descriptors::raise_limit();
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    let http = Arc::new(Http::new(config, scheme)?);
    longhaul_command::event_loop::current_thread()?.block_on(serve(listener.into(), http))
}

async fn serve(listener: TcpListener, http: Arc<Http>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut terminate = signal(SignalKind::terminate())?;
    // A terminal tells all processes; the site decides.
    let _interrupt = signal(SignalKind::interrupt())?;
    let stop = Stop::default();
    let watch = stop.watch();
    let accepted = accept(listener, stop.watch(), move |socket, client| {
        http.clone().visit(socket, client, watch.clone())
    });
    let ended = async {
        terminate.recv().await;
        stop.now();
    };
    tokio::join!(accepted, ended);
    // What has begun goes on without its connection.
    let _ = timeout(COMPLETION, claims::all_given_back()).await;
    Ok(())
}

/// Has a process serve the listener, and another when it ends, until the site does.
pub(crate) async fn keep(
    listener: tokio::net::TcpListener,
    scheme: Scheme,
    news: Arc<News>,
    records: Records,
    mut stopped: Stopped,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let begin = Instant::now();
        let served = serve_once(&listener, scheme, &news, records, &mut stopped).await;
        let why = match served {
            Ok(None) => return,
            Ok(Some(why)) => why,
            Err(error) => format!("{error:#}"),
        };
        let listener = scheme.to_string();
        records.write(&Record::HttpEnded { listener, why });
        pause = match begin.elapsed() >= PAUSE_MAX {
            true => PAUSE_MIN,
            false => (pause * 2).min(PAUSE_MAX),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped.reached() => return,
        }
    }
}

/// Why the process ended; nothing if the site does.
async fn serve_once(
    listener: &tokio::net::TcpListener,
    scheme: Scheme,
    news: &News,
    records: Records,
    stopped: &mut Stopped,
) -> Result<Option<String>> {
    let mut child = start(listener, scheme)?;
    let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let relayed = async {
        while let Ok(Some(line)) = lines.next_line().await {
            relay(&line, news, records);
        }
    };
    tokio::pin!(relayed);
    tokio::select! {
        () = &mut relayed => return Ok(Some(child.wait().await?.to_string())),
        () = stopped.reached() => {}
    }
    terminate(&child);
    let ended = async {
        relayed.await;
        child.wait().await
    };
    // Dropped, it is killed.
    let _ = timeout(FAREWELL, ended).await;
    Ok(None)
}

fn start(listener: &tokio::net::TcpListener, scheme: Scheme) -> Result<Child> {
    let socket: OwnedFd = listener.as_fd().try_clone_to_owned()?;
    Command::new(SELF)
        .args(std::env::args_os().skip(1))
        .args(["--serve", &scheme.to_string()])
        .stdin(Stdio::from(socket))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("no process starts")
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        // It may be gone already.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
}

/// Says what the process says.
fn relay(line: &str, news: &News, records: Records) {
    let Ok(record) = serde_json::from_str(line) else {
        return;
    };
    if let Record::Request {
        export,
        status: Some(200..=299),
        ..
    } = &record
    {
        news.came(export);
    }
    records.write(&record);
}
