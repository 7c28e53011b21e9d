// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of an HTTP listener, and the responses to their requests.

use super::{
    access::{AuthError, Principal},
    audit::AuditEntry,
    budget::{RequestBudget, hold_until_sent},
    dav,
    export::tree,
    index,
    request::{
        body::RequestBody,
        line::{LineCheck, LineRecorder, RequestLines},
        target::Rejection,
    },
    response::{HttpResponse, text_response},
};
use crate::{
    config::Config,
    http_args::Scheme,
    keys::identity::{Certificate, Identity},
    listener::{
        accept::ShutdownSignal,
        connections::{self, ConnectionLimiter, ConnectionPermit},
        refusals::{RefusalCause, RefusalLog},
    },
    record_writer::RecordWriter,
};
use anyhow::Result;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderName, HeaderValue},
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

/// Most connections of a listener at once. Each costs some 200 KB while a body is transferred.
const CONNECTIONS_MAX: usize = 128;

/// Most connections from one host to `--https`. Those to `--http` may all come from one proxy or mount.
const CONNECTIONS_PER_HOST_MAX: usize = 32;

/// Longest time to read and drop bytes that a client still sends after its response.
const LINGER: Duration = Duration::from_secs(1);

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

/// Methods of an export's files and directories. A response with the status 405 names the others (RFC 9110 §15.5.6).
const METHODS: [&str; 12] = [
    "OPTIONS",
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
];

/// State shared by all connections of a listener.
pub(super) struct HttpServer {
    config: Config,
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
        let (acceptor, per_host) = match scheme {
            Scheme::Http => (None, CONNECTIONS_MAX),
            Scheme::Https => (
                Some(acceptor(&config, &identity)?),
                CONNECTIONS_PER_HOST_MAX,
            ),
        };
        Ok(Self {
            // The site formats the records for its user.
            records: RecordWriter { json: true },
            limiter: ConnectionLimiter::new(connections::ConnectionLimits {
                total: CONNECTIONS_MAX,
                per_host,
            }),
            refusals: RefusalLog::new(Instant::now()),
            budget: RequestBudget::default(),
            config,
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
        let mut stream = LineRecorder::new(stream, &lines);
        let service = async |request| {
            let (request, unread) = RequestBody::of(request);
            let line = lines.check(&request);
            let mut response = self.respond(request, client, line, connection).await;
            if !unread.read().await {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            lines.reset();
            Ok::<_, Infallible>(hold_until_sent(response))
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
        request: Request<RequestBody>,
        client: SocketAddr,
        line: LineCheck,
        connection: &ConnectionPermit,
    ) -> HttpResponse {
        let method = request.method().clone();
        let mut response = match self.execute(request, client, line, connection).await {
            Ok(response) => response,
            Err(error) => {
                if matches!(error, AuthError::WrongToken) {
                    let why = "the token is not valid at this site";
                    let refusals = &self.refusals;
                    sleep(refusals.report(client, RefusalCause::WrongToken, why, self.records))
                        .await;
                }
                error.response()
            }
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let others = METHODS
                .into_iter()
                .filter(|other| *other != method.as_str());
            // Method names are ASCII.
            if let Ok(others) = HeaderValue::try_from(others.collect::<Vec<_>>().join(", ")) {
                response
                    .headers_mut()
                    .entry(header::ALLOW)
                    .or_insert(others);
            }
        }
        for (name, value) in SECURITY_HEADERS {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }

    async fn execute(
        &self,
        request: Request<RequestBody>,
        client: SocketAddr,
        line: LineCheck,
        connection: &ConnectionPermit,
    ) -> Result<HttpResponse, AuthError> {
        let config = &self.config;
        let principal =
            Principal::authenticate(&request, config, &self.identity.fingerprint).await?;
        connection.mark_authenticated();
        if index::is_index_request(&request) {
            return Ok(index::respond(&principal, config, &self.budget, request).await);
        }
        let export = request.uri().path().split('/').nth(1).unwrap_or_default();
        let identity = (principal.token(), export);
        let entry = AuditEntry::new(&request, client, identity, self.records);
        if let Err((status, why)) = check_line(line, request.method()) {
            return Ok(entry.finish(text_response(status, why)));
        }
        match principal.authorize(export, config, &self.budget) {
            Ok(access) => Ok(dav::respond(access, request, entry).await),
            Err(error) => Ok(entry.finish(error.response())),
        }
    }
}

/// Checks that the request's name has not lost a fragment. A read may pass without a recorded line.
fn check_line(line: LineCheck, method: &Method) -> Result<(), Rejection> {
    let reads = method.is_safe() || method.as_str() == "PROPFIND";
    match line {
        LineCheck::WithFragment => Err((
            StatusCode::BAD_REQUEST,
            "\"#\" in a name must be %23 in a URL",
        )),
        LineCheck::Unknown if !reads => Err((
            StatusCode::BAD_REQUEST,
            "want no request that changes something before the response to the previous one",
        )),
        _ => Ok(()),
    }
}

/// Returns the TLS acceptor for HTTPS.
fn acceptor(config: &Config, identity: &Identity) -> Result<TlsAcceptor> {
    let certificate: &Certificate = match &config.certificate {
        Some(certificate) => certificate,
        None => &identity.certificate,
    };
    certificate.acceptor(b"http/1.1")
}
