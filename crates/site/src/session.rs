// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of a client, from its connection to the end of its copy.

use super::{
    bridge::{TlsConnection, bridge},
    config::Config,
    keys::{identity::Identity, tokens::Tokens},
    listener::{
        accept::ShutdownSignal,
        connections::{ConnectionLimiter, ConnectionLimits},
        refusals::{RefusalCause, RefusalLog},
    },
    mirror::ChangeNotifier,
    record::Record,
    record_writer::RecordWriter,
    transcript::CopyTranscript,
};
use anyhow::{Context as _, Result, ensure};
use longhaul_copy::{
    IDLE_TIMEOUT,
    protocol::{
        auth::{AUTH_TIMEOUT, AuthRequest, AuthResponse, ExportScope, PROTOCOL, REQUEST_LEN_MAX},
        message,
    },
};
use longhaul_transport::blocking::enable_keepalive;
use parking_lot::Mutex;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

/// Limits on unauthenticated connections, which cost some 50 KB each. Both endpoints of a copy between eight hosts
/// connect from one address at once.
const UNAUTHENTICATED_LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    per_host: 32,
};

/// State shared by all sessions.
pub(super) struct CopyServer {
    config: Arc<Config>,
    acceptor: TlsAcceptor,
    records: RecordWriter,
    connections: ConnectionLimiter,
    refusals: RefusalLog,
    copies: Arc<Semaphore>,
    next_copy: AtomicU64,
    notifier: Arc<ChangeNotifier>,
}

/// Rights of a client that was accepted.
struct Admission {
    scope: ExportScope,
    token: String,
    _permit: OwnedSemaphorePermit,
}

impl CopyServer {
    pub(super) fn new(
        config: Arc<Config>,
        identity: &Identity,
        records: RecordWriter,
        notifier: Arc<ChangeNotifier>,
    ) -> Result<Self> {
        Ok(Self {
            acceptor: identity.certificate.acceptor(PROTOCOL)?,
            connections: ConnectionLimiter::new(UNAUTHENTICATED_LIMITS),
            refusals: RefusalLog::new(Instant::now()),
            copies: Arc::new(Semaphore::new(config.copies_max)),
            next_copy: AtomicU64::new(1),
            config,
            records,
            notifier,
        })
    }

    /// Logs the refusal, unless its burst is logged already. Returns the time that the client waits.
    fn refuse(&self, client: SocketAddr, cause: RefusalCause, why: &str) -> Duration {
        self.refusals.report(client, cause, why, self.records)
    }

    /// Decides on the request of a client that has connected to `local_address`.
    fn authorize(
        &self,
        request: &AuthRequest,
        tokens: Result<Tokens>,
        local_address: IpAddr,
    ) -> Result<Admission, (RefusalCause, AuthResponse)> {
        let refused = |why: String| (RefusalCause::Other, AuthResponse::Refused(why));
        let busy = |why: String| (RefusalCause::Other, AuthResponse::Busy(why));
        let tokens =
            tokens.map_err(|error| busy(format!("the site can't read its tokens: {error:#}")))?;
        let found = tokens.find(&request.secret);
        let (token, grant) = found.ok_or_else(|| {
            let why = "the token is not valid at this site".to_owned();
            (RefusalCause::WrongToken, AuthResponse::Refused(why))
        })?;
        let name = &request.export;
        let export = self.config.exports.get(name).filter(|_| grant.covers(name));
        let export =
            export.ok_or_else(|| refused(format!("{name:?}: no such export for {token}")))?;
        let permit = self.copies.clone().try_acquire_owned().map_err(|_| {
            let count = self.config.copies_max;
            busy(format!("busy with {count} copies, its maximum"))
        })?;
        Ok(Admission {
            scope: ExportScope {
                export: name.clone(),
                directory: export.directory.clone(),
                other_exports: self.config.other_exports(name),
                writable: export.writable && !grant.read_only,
                local_address,
                ports: self.config.ports,
            },
            token: token.to_owned(),
            _permit: permit,
        })
    }
}

/// Serves one connection, until it ends or the site stops.
pub(super) async fn serve_client(
    server: Arc<CopyServer>,
    socket: TcpStream,
    client: SocketAddr,
    mut shutdown: ShutdownSignal,
) {
    let refuse_crowded = || {
        let why = "too many unauthenticated connections";
        server.refuse(client, RefusalCause::TooManyConnections, why);
    };
    let Some(connection) = server.connections.try_acquire(client.ip()) else {
        refuse_crowded();
        return;
    };
    let authenticated = tokio::select! {
        authenticated = timeout(AUTH_TIMEOUT, authenticate(&server, socket, client)) => authenticated,
        // A new connection has evicted this one.
        () = connection.wait_for_eviction(2 * AUTH_TIMEOUT) => {
            refuse_crowded();
            return;
        }
        _ = shutdown.received() => return,
    };
    drop(connection);
    let (tls, admission) =
        match authenticated.unwrap_or_else(|_| Err(anyhow::Error::msg("too slow"))) {
            Ok(Some(authenticated)) => authenticated,
            Ok(None) => return,
            Err(error) => {
                server.refuse(client, RefusalCause::Other, &format!("{error:#}"));
                return;
            }
        };
    let copy = server.next_copy.fetch_add(1, Relaxed);
    server.records.write(&Record::CopyStarted {
        copy,
        client,
        token: admission.token,
        export: admission.scope.export.clone(),
    });
    let transcript = Mutex::new(CopyTranscript::new());
    if let Err(error) = bridge(tls, &admission.scope, &transcript, shutdown).await {
        warn!("copy {copy}: {error:#}");
    }
    if admission.scope.writable {
        server.notifier.notify(&admission.scope.export);
    }
    server.records.write(&transcript.lock().to_record(copy));
}

/// Performs the TLS and the authentication handshake. Returns `None` if the client was refused and has its response.
async fn authenticate(
    server: &CopyServer,
    socket: TcpStream,
    client: SocketAddr,
) -> Result<Option<(TlsConnection, Admission)>> {
    enable_keepalive(&socket, IDLE_TIMEOUT)?;
    socket.set_nodelay(true)?;
    // A dual-stack socket reports IPv4-mapped IPv6 addresses.
    let local_address = socket.local_addr()?.ip().to_canonical();
    let mut tls = server.acceptor.accept(socket).await.context("no TLS")?;
    let request = read_request(&mut tls).await?;
    let tokens = Tokens::read_async(&server.config.state).await;
    match server.authorize(&request, tokens, local_address) {
        Ok(admission) => {
            send_response(&mut tls, &AuthResponse::Accepted).await?;
            Ok(Some((tls, admission)))
        }
        Err((cause, refusal)) => {
            sleep(server.refuse(client, cause, &refusal.to_string())).await;
            send_response(&mut tls, &refusal).await?;
            // The client has its response already.
            let _ = tls.shutdown().await;
            Ok(None)
        }
    }
}

async fn send_response(tls: &mut TlsConnection, response: &AuthResponse) -> Result<()> {
    let mut bytes = Vec::new();
    message::write(&mut bytes, response)?;
    tls.write_all(&bytes).await?;
    Ok(tls.flush().await?)
}

async fn read_request(tls: &mut TlsConnection) -> Result<AuthRequest> {
    let length = tls.read_u32().await?;
    ensure!(
        length as usize <= REQUEST_LEN_MAX,
        "a request of {length} bytes"
    );
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.resize(bytes.len() + length as usize, 0);
    tls.read_exact(&mut bytes[4..]).await?;
    let request = message::read(&mut bytes.as_slice())?;
    request.context("no request")
}
