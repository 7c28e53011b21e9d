// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener, and the connections that it has accepted.

use anyhow::Result;
use longhaul_command::exit::{Refusal, bind_error};
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Delay after an error of accept(2). The likely cause is that the process has no file descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Opens a listener, or returns an error that names the address.
pub(crate) async fn listen(at: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(at).await;
    listener.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => bind_error(format!("cannot listen on {at}"), error),
        _ => Refusal::usage(format!("cannot listen on {at}: {error}")),
    })
}

/// Passes each connection to `serve` until the shutdown, then waits for all of them. `serve` limits their number.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    mut shutdown: ShutdownSignal,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.received() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, client)) => drop(connections.spawn(serve(socket, client))),
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Sender of the shutdown signal.
#[derive(Debug, Default)]
pub(crate) struct ShutdownTrigger(watch::Sender<bool>);

/// Signal that a shutdown was triggered.
#[derive(Debug, Clone)]
pub(crate) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownTrigger {
    pub(crate) fn subscribe(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }

    pub(crate) fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl ShutdownSignal {
    /// Waits until the shutdown is triggered, or the trigger is dropped.
    pub(crate) async fn received(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}
