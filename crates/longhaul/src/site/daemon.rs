// SPDX-License-Identifier: MIT OR Apache-2.0
//! The site itself: it listens, and at SIGTERM or SIGINT takes everything down that it has started.

use super::{
    config::Config,
    identity::Identity,
    record::{Record, Records},
    stop::Stop,
    visit::{Site, visit},
};
use crate::exit::Refusal;
use anyhow::{Context as _, Result};
use sd_notify::NotifyState;
use std::{sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

/// Connections that are not let in yet, at most: each costs some 50 KB. Beyond them newcomers are closed at once.
const HANDSHAKES_MAX: usize = 64;

/// After an error of the listener: likely there are no descriptors left.
const BREATH: Duration = Duration::from_millis(100);

pub(super) fn run(config: Config) -> Result<()> {
    // Without more, fewer clients are served at once.
    let _ = host::descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<()> {
    let identity = Identity::of(&config.state)?;
    let records = Records { json: config.json };
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener
        .map_err(|error| Refusal::usage(format!("cannot listen on {}: {error}", config.listen)))?;
    records.say(&Record::Ready {
        listening: listener.local_addr()?,
        fingerprint: identity.fingerprint()?.to_string(),
        exports: config.exports.keys().cloned().collect(),
    });
    tell(&[NotifyState::Ready]);
    let stop = Stop::default();
    let site = Arc::new(Site::new(config, identity, records, HANDSHAKES_MAX)?);
    let mut visits = JoinSet::new();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            Some(_) = visits.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, client)) => {
                    visits.spawn(visit(site.clone(), socket, client, stop.watch()));
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    records.say(&Record::Stopping);
    tell(&[NotifyState::Stopping]);
    drop(listener);
    stop.now();
    while visits.join_next().await.is_some() {}
    Ok(())
}

/// The service manager, if one listens.
fn tell(news: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(news) {
        eprintln!("longhaul site: NOTIFY_SOCKET: {error}");
    }
}
