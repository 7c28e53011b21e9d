// SPDX-License-Identifier: MIT OR Apache-2.0
//! The site itself: it listens, and at SIGTERM or SIGINT takes everything down that it has started.

use super::{
    config::{Config, Scheme},
    http,
    keys::identity::Identity,
    lines::Records,
    listener::accept::{Stop, accept, listen},
    mirror::{News, mirror},
    record::Record,
    visit::{Site, visit},
};
use anyhow::{Context as _, Result};
use sd_notify::NotifyState;
use std::sync::Arc;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tracing::warn;

pub(super) fn run(config: Config) -> Result<()> {
    // Without more, fewer clients are served at once.
    let _ = longhaul_linux::descriptors::raise_limit();
    let runtime = longhaul_command::event_loop::current_thread()?;
    runtime.block_on(serve(Arc::new(config)))
}

/// Where it listens.
struct Listeners {
    copies: TcpListener,
    http: Option<TcpListener>,
    https: Option<TcpListener>,
}

impl Listeners {
    async fn open(config: &Config) -> Result<Self> {
        let maybe = async |at: Option<_>| match at {
            Some(at) => listen(at).await.map(Some),
            None => Ok(None),
        };
        Ok(Self {
            copies: listen(config.listen).await?,
            http: maybe(config.http).await?,
            https: maybe(config.https).await?,
        })
    }

    fn ready(&self, config: &Config, identity: &Identity) -> Result<Record> {
        let at = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose()
        };
        Ok(Record::Ready {
            listening: self.copies.local_addr()?,
            http: at(&self.http)?,
            https: at(&self.https)?,
            fingerprint: identity.fingerprint.to_string(),
            exports: config.exports.keys().cloned().collect(),
        })
    }
}

async fn serve(config: Arc<Config>) -> Result<()> {
    let identity = Identity::of(&config.state)?;
    let records = Records { json: config.json };
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let listeners = Listeners::open(&config).await?;
    let ready = listeners.ready(&config, &identity)?;
    let (stop, mut open) = (Stop::default(), JoinSet::new());
    let news = Arc::new(News::of_exports(&config.exports));
    let site = Site::new(config.clone(), &identity, records, news.clone())?;
    let site = Arc::new(site);
    let watch = stop.watch();
    open.spawn(accept(
        listeners.copies,
        stop.watch(),
        move |socket, client| visit(site.clone(), socket, client, watch.clone()),
    ));
    for mirrored in config.mirrors.clone() {
        let arrivals = news.of(&mirrored.export);
        open.spawn(mirror(mirrored, arrivals, records, stop.watch()));
    }
    for (scheme, listener) in [
        (Scheme::Http, listeners.http),
        (Scheme::Https, listeners.https),
    ] {
        if let Some(listener) = listener {
            let news = news.clone();
            open.spawn(http::process::keep(
                listener,
                scheme,
                news,
                records,
                stop.watch(),
            ));
        }
    }
    records.write(&ready);
    tell(&[NotifyState::Ready]);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    records.write(&Record::Stopping);
    tell(&[NotifyState::Stopping]);
    stop.now();
    while open.join_next().await.is_some() {}
    Ok(())
}

/// The service manager, if one listens.
fn tell(news: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(news) {
        warn!("NOTIFY_SOCKET: {error}");
    }
}
