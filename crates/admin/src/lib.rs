// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admin endpoint of a daemon: health, metrics, a JSON interface and a status page, over HTTP
//! on loopback. Its data are the records of a [`Source`].
//!
//! [`record`] has the records of the endpoint, [`relay_record`] those that a relay writes with --counters.
//!
//! ```
//! use longhaul_admin::relay_record::Counts;
//!
//! let mut total = Counts { accepted: 2, ..Counts::default() };
//! total.add(&Counts { accepted: 3, ..Counts::default() });
//! assert_eq!(total.accepted, 5);
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod format;
mod guard;
mod metrics;
mod query;
pub mod record;
pub mod relay_record;
mod release;
mod response;

pub use record::Source;

use anyhow::Context as _;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_command::exit::{LOW_PORT_REQUIREMENT, Refusal};
use release::Release;
use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::Semaphore,
    time::{sleep, timeout},
};

/// Most concurrent connections; further ones wait in the listen queue. Each needs less than 32 KiB and the
/// response.
const CONNECTIONS_MAX: usize = 64;
/// Timeout of a request's head, and of the time between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Age after which a connection accepts no more requests. It is closed after the grace period, so that a slow
/// reader does not occupy it forever.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);
/// Grace period: the time in which such a connection may finish its response.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Most bytes of a request's head. A longer head gets status 431.
const HEAD_LEN_MAX: usize = 16 * 1024;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;
/// Pause after a failed accept(2), which is most likely for lack of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Contents of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// All pages, to programs of this host: the socket must be on loopback.
    Admin,
    /// The health in one word, to any client: for load balancers on other hosts.
    Health,
}

impl Endpoint {
    /// Returns the flag that opens the socket, without dashes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Health => "health",
        }
    }
}

/// Opens the endpoint's socket. A port in use is an error, unless a draining relay has it and releases it.
pub fn listen(endpoint: Endpoint, address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let open = || {
        let listener = release::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open()
        .map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => Refusal::unsupported(LOW_PORT_REQUIREMENT),
            _ => anyhow::Error::new(error),
        })
        .with_context(|| format!("--{} {address}", endpoint.name()))
}

/// Serves until a successor requests the port.
pub async fn serve(listener: TcpListener, source: impl Source, endpoint: Endpoint) {
    let release = Release::new();
    select! {
        () = accept_all(listener, source, &release, endpoint) => {}
        () = release.requested() => {}
    }
}

async fn accept_all(
    listener: TcpListener,
    source: impl Source,
    release: &Release,
    endpoint: Endpoint,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, _)) => {
                let (source, release) = (source.clone(), release.clone());
                tokio::spawn(async move {
                    serve_client(client, source, release, endpoint).await;
                    drop(permit);
                });
            }
            Err(_) => sleep(ACCEPT_BACKOFF).await,
        }
    }
}

/// Serves one client; errors of the connection are ignored.
async fn serve_client(
    client: TcpStream,
    source: impl Source,
    release: Release,
    endpoint: Endpoint,
) {
    let service = service_fn(|request| {
        let (source, release) = (source.clone(), release.clone());
        async move {
            Ok::<_, Infallible>(match endpoint {
                Endpoint::Admin => response::respond(&request, &source, &release).await,
                Endpoint::Health => response::respond_health(&request, &source, &release),
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LEN_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(client), service);
    let mut connection = pin!(connection);
    let is_too_old = select! {
        _ = connection.as_mut() => false,
        () = sleep(CONNECTION_AGE_MAX) => true,
    };
    if is_too_old {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(GRACE_PERIOD, connection).await;
    }
}
