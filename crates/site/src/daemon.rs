// SPDX-License-Identifier: MIT OR Apache-2.0
//! Main task of a site. It opens the listeners and starts all other tasks. At SIGTERM or SIGINT it stops them.

use super::{
    config::Config,
    exports::warn_of_unwritable,
    keys::{identity::Identity, tokens},
    listener::accept::{ShutdownTrigger, accept, listen},
    mirror::{ChangeNotifier, mirror},
    record::Record,
    record_writer::RecordWriter,
    session::{CopyServer, serve_client},
};
use super::{http::process::supervise, http_args::Scheme};
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
    // If the limit can't be raised, fewer clients are served at once.
    let _ = longhaul_linux::descriptors::raise_limit();
    let runtime = longhaul_command::event_loop::current_thread()?;
    runtime.block_on(serve(Arc::new(config)))
}

/// Sockets that the site listens on.
struct Listeners {
    copies: TcpListener,
    http: Option<TcpListener>,
    https: Option<TcpListener>,
}

impl Listeners {
    async fn open(config: &Config) -> Result<Self> {
        let listen_if = async |address: Option<_>| match address {
            Some(address) => listen(address).await.map(Some),
            None => Ok(None),
        };
        Ok(Self {
            copies: listen(config.listen).await?,
            http: listen_if(config.http).await?,
            https: listen_if(config.https).await?,
        })
    }

    fn ready_record(&self, config: &Config, identity: &Identity) -> Result<Record> {
        let address_of = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose()
        };
        Ok(Record::Ready {
            listening: self.copies.local_addr()?,
            http: address_of(&self.http)?,
            https: address_of(&self.https)?,
            fingerprint: identity.fingerprint.to_string(),
            exports: config.exports.keys().cloned().collect(),
        })
    }
}

async fn serve(config: Arc<Config>) -> Result<()> {
    let identity = Identity::load_or_create(&config.state)?;
    let names = config.exports.keys().map(String::as_str);
    tokens::store_exports(&config.state, names)?;
    let records = RecordWriter { json: config.json };
    warn_of_unwritable(&config.exports);
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let listeners = Listeners::open(&config).await?;
    let ready = listeners.ready_record(&config, &identity)?;
    let (shutdown, mut tasks) = (ShutdownTrigger::default(), JoinSet::new());
    let notifier = Arc::new(ChangeNotifier::new(&config.exports));
    let server = CopyServer::new(config.clone(), &identity, records, notifier.clone())?;
    let server = Arc::new(server);
    let session_shutdown = shutdown.subscribe();
    tasks.spawn(accept(
        listeners.copies,
        shutdown.subscribe(),
        move |socket, client| {
            serve_client(server.clone(), socket, client, session_shutdown.clone())
        },
    ));
    for mirror_config in config.mirrors.clone() {
        let changes = notifier.subscribe(&mirror_config.export);
        tasks.spawn(mirror(
            mirror_config,
            changes,
            records,
            shutdown.subscribe(),
        ));
    }
    for (scheme, listener) in [
        (Scheme::Http, listeners.http),
        (Scheme::Https, listeners.https),
    ] {
        if let Some(listener) = listener {
            let notifier = notifier.clone();
            tasks.spawn(supervise(
                listener,
                scheme,
                notifier,
                records,
                shutdown.subscribe(),
            ));
        }
    }
    records.write(&ready);
    notify_systemd(&[NotifyState::Ready, NotifyState::Status(&ready.to_string())]);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    records.write(&Record::Stopping);
    notify_systemd(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    shutdown.trigger();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Notifies the service manager, if there is one.
fn notify_systemd(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("NOTIFY_SOCKET: {error}");
    }
}
