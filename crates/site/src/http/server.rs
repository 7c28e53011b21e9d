// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of an HTTP listener, and the responses to their requests.

use super::{
    access::{Principal, WRONG_TOKEN},
    audit::AuditEntry,
    budget::RequestBudget,
    dav,
    export::tree,
    index,
    request::line::RequestLines,
    response::{HttpResponse, Outcome, insert},
};
use crate::{
    config::Config,
    http_args::Scheme,
    keys::identity::Identity,
    listener::{
        accept::ShutdownSignal,
        connections::{ConnectionLimiter, ConnectionLimits, ConnectionPermit},
        refusals::{RefusalCause, RefusalLog},
    },
    record_writer::RecordWriter,
};
use anyhow::Result;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Request, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HeaderName},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_copy::{IDLE_TIMEOUT, protocol::auth::AUTH_TIMEOUT};
use longhaul_store::root::Root;
use longhaul_transport::blocking::enable_keepalive;
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, sink},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

/// Most connections of a listener at once. Each costs some 200 KB while a body is transferred.
const CONNECTIONS_MAX: usize = 128;

/// Most connections from one host to `--https`. Those to `--http` may all come from one proxy or mount.
const CONNECTIONS_PER_HOST_MAX: usize = 32;

/// Longest time to read and drop bytes that a client still sends after its response.
const LINGER: Duration = Duration::from_secs(1);

/// Most bytes of an unread body that are read and dropped, and the time to wait for them.
const UNREAD_LEN_MAX: usize = 64 << 10;
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Headers of every response. Contents that a client has uploaded are displayed, but can't run scripts under this
/// origin.
const SECURITY_HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "sandbox allow-downloads; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// State shared by all connections of a listener.
pub(super) struct HttpServer {
    config: Arc<Config>,
    identity: Identity,
    records: RecordWriter,
    limiter: ConnectionLimiter,
    refusals: RefusalLog,
    budget: RequestBudget,
    /// TLS acceptor, for HTTPS.
    acceptor: Option<TlsAcceptor>,
}

impl HttpServer {
    pub(super) fn new(config: Config, scheme: Scheme) -> Result<Self> {
        let identity = Identity::load_or_create(&config.state)?;
        let certificate = config.certificate.as_ref().unwrap_or(&identity.certificate);
        let total = CONNECTIONS_MAX;
        let (acceptor, per_host) = match scheme {
            Scheme::Http => (None, total),
            Scheme::Https => {
                let acceptor = certificate.acceptor(b"http/1.1")?;
                (Some(acceptor), CONNECTIONS_PER_HOST_MAX)
            }
        };
        Ok(Self {
            // The site formats the records for its user.
            records: RecordWriter { json: true },
            limiter: ConnectionLimiter::new(ConnectionLimits { total, per_host }),
            refusals: RefusalLog::new(Instant::now()),
            budget: RequestBudget::default(),
            config: Arc::new(config),
            identity,
            acceptor,
        })
    }

    /// Removes what killed requests left in exports.
    pub(super) fn remove_leftovers(&self) {
        let exports = self.config.exports.values();
        for export in exports.filter(|export| export.writable) {
            // A directory that cannot be opened now may be mounted later.
            if let Ok(root) = Root::open_without_links(&export.directory) {
                tree::remove_orphaned_uploads(&root);
            }
        }
    }

    /// Serves a connection until it ends or the site stops.
    pub(super) async fn serve_client(
        self: Arc<Self>,
        socket: TcpStream,
        client: SocketAddr,
        mut shutdown: ShutdownSignal,
    ) {
        let refuse_crowded = || {
            let why = "too many connections";
            let cause = RefusalCause::TooManyConnections;
            self.refusals.report(client, cause, why, self.records);
        };
        let Some(connection) = self.limiter.try_acquire(client.ip()) else {
            return refuse_crowded();
        };
        if enable_keepalive(&socket, IDLE_TIMEOUT).is_err() {
            return;
        }
        let begin = Instant::now();
        tokio::select! {
            () = self.accept_tls(socket, client, &connection) => {}
            () = connection.wait_for_eviction(AUTH_TIMEOUT) => if begin.elapsed() < AUTH_TIMEOUT {
                refuse_crowded();
            },
            () = shutdown.received() => {}
        }
    }

    async fn accept_tls(
        &self,
        socket: TcpStream,
        client: SocketAddr,
        connection: &ConnectionPermit,
    ) {
        let Some(acceptor) = &self.acceptor else {
            return self.serve(socket, client, connection).await;
        };
        // Errors of a connection concern only its client.
        if let Ok(tls) = acceptor.accept(socket).await {
            self.serve(tls, client, connection).await;
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        client: SocketAddr,
        connection: &ConnectionPermit,
    ) {
        let lines = RequestLines::default();
        let (reader, writer) = tokio::io::split(stream);
        let reader = InspectReader::new(reader, |received| lines.record(received));
        let mut stream = tokio::io::join(reader, writer);
        let service = async |request: Request<Incoming>| {
            let line = lines.check(&request);
            let expects_continue = request.headers().contains_key(header::EXPECT);
            let (head, mut body) = request.into_parts();
            let request = Request::from_parts(head, &mut body);
            let mut response = self.respond(request, client, line, connection).await;
            if !is_read_to_end(body, expects_continue).await {
                insert(&mut response, header::CONNECTION, "close");
            }
            lines.reset();
            Ok::<_, Infallible>(response)
        };
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(AUTH_TIMEOUT)
            .serve_connection(TokioIo::new(&mut stream), service_fn(service));
        // Errors of a connection concern only its client.
        if served.await.is_ok() {
            // A client that still sends would lose the response to a reset (RFC 9112 §9.6).
            let _ = timeout(LINGER, tokio::io::copy(&mut stream, &mut sink())).await;
        }
    }

    async fn respond(
        &self,
        request: Request<&mut Incoming>,
        client: SocketAddr,
        line: Outcome<()>,
        connection: &ConnectionPermit,
    ) -> HttpResponse {
        let method = request.method().clone();
        let outcome = self.execute(request, client, line, connection).await;
        if let Err(WRONG_TOKEN) = outcome {
            let (cause, why) = (RefusalCause::WrongToken, WRONG_TOKEN.1);
            sleep(self.refusals.report(client, cause, why, self.records)).await;
        }
        let mut response = outcome.unwrap_or_else(Into::into);
        if response.status() == StatusCode::UNAUTHORIZED {
            let basic = "Basic realm=\"longhaul site\"";
            insert(&mut response, header::WWW_AUTHENTICATE, basic);
        }
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            // Names the others (RFC 9110 §15.5.6).
            let mut others = dav::METHODS.to_vec();
            others.retain(|other| *other != method.as_str());
            insert(&mut response, header::ALLOW, others.join(", "));
        }
        for (name, value) in SECURITY_HEADERS {
            insert(&mut response, name, value);
        }
        response
    }

    async fn execute(
        &self,
        request: Request<&mut Incoming>,
        client: SocketAddr,
        line: Outcome<()>,
        connection: &ConnectionPermit,
    ) -> Outcome {
        let config = &self.config;
        let principal =
            Principal::authenticate(&request, config, &self.identity.fingerprint).await?;
        connection.mark_authenticated();
        if index::is_index_request(&request) {
            return index::respond(&principal, config, &self.budget, request).await;
        }
        let export = request.uri().path().split('/').nth(1).unwrap_or_default();
        let identity = (&*principal.token, export);
        let entry = AuditEntry::new(&request, client, identity, self.records);
        let access = line.and_then(|()| principal.authorize(export, config, &self.budget));
        Ok(match access {
            Ok(access) => dav::respond(access, request, entry).await,
            Err(rejection) => entry.finish(Err(rejection)),
        })
    }
}

/// Reads and drops what a request has left of its body. It would be parsed as the next request. Returns whether nothing
/// is left; a long remainder is not read.
async fn is_read_to_end(body: Incoming, expects_continue: bool) -> bool {
    if body.is_end_stream() {
        return true;
    }
    // The client sends the body only after a 100 response (RFC 9110 §10.1.1).
    if expects_continue || body.size_hint().lower() > UNREAD_LEN_MAX as u64 {
        return false;
    }
    let rest = Limited::new(body, UNREAD_LEN_MAX).collect();
    timeout(UNREAD_TIMEOUT, rest)
        .await
        .is_ok_and(|read| read.is_ok())
}
