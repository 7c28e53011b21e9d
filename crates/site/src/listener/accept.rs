// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener, and all that came in by it.

use anyhow::Result;
use longhaul_command::exit::{Refusal, port_not_opened};
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// After an error of the listener: likely there are no descriptors left.
const BREATH: Duration = Duration::from_millis(100);

/// Listens, or says where it can't.
pub(crate) async fn listen(at: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(at).await;
    listener.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => port_not_opened(format!("cannot listen on {at}"), error),
        _ => Refusal::usage(format!("cannot listen on {at}: {error}")),
    })
}

/// Gives each connection to `serve`, until it is to stop; then waits for all that it gave away. `serve` bounds them.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    mut stopped: Stopped,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            () = stopped.reached() => break,
            Some(_) = served.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, client)) => drop(served.spawn(serve(socket, client))),
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    while served.join_next().await.is_some() {}
}

/// Who decides.
#[derive(Debug, Default)]
pub(crate) struct Stop(watch::Sender<bool>);

/// Who obeys.
#[derive(Debug, Clone)]
pub(crate) struct Stopped(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn watch(&self) -> Stopped {
        Stopped(self.0.subscribe())
    }

    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }
}

impl Stopped {
    /// Returns when it is to stop; also if whoever decides is gone.
    pub(crate) async fn reached(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}
