// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of a listener of HTTP, and the answers to what comes by them.

use super::{
    access::{Refusal, Visitor},
    answer::{Answer, said},
    audit::Entry,
    dav, index,
    request::{
        body::Received,
        line::{Lines, Seen, Watched},
        target::Rejection,
    },
    room::{Room, held},
};
use crate::{
    config::{Config, Scheme},
    keys::identity::{Certificate, Identity},
    lines::Records,
    listener::{
        accept::Stopped,
        connections::{self, Connection, Connections},
        refusals::{Cause, Refusals},
    },
};
use anyhow::Result;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_transfer::{SILENCE_TIMEOUT, protocol::auth::AUTH_TIMEOUT};
use longhaul_transport::blocking::end_when_silent;
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

/// Connections at once to a listener: each costs some 200 KB while a body moves.
const CONNECTIONS_MAX: usize = 128;

/// Of them from one address to `--https`. All that come to `--http` may come from one: a proxy's, or a mount's.
const CONNECTIONS_OF_ONE_MAX: usize = 32;

/// How long a client may go on sending what nobody reads.
const LINGER: Duration = Duration::from_secs(1);

/// On every answer. What somebody has put into an export is shown, but runs nothing in the name of who looks at it.
const ALWAYS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "sandbox allow-downloads; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// What all connections of a listener have.
pub(super) struct Http {
    config: Config,
    identity: Identity,
    records: Records,
    places: Connections,
    refusals: Refusals,
    room: Room,
    /// For HTTPS.
    acceptor: Option<TlsAcceptor>,
}

impl Http {
    pub(super) fn new(config: Config, scheme: Scheme) -> Result<Self> {
        let identity = Identity::of(&config.state)?;
        let (acceptor, of_one) = match scheme {
            Scheme::Http => (None, CONNECTIONS_MAX),
            Scheme::Https => (Some(acceptor(&config, &identity)?), CONNECTIONS_OF_ONE_MAX),
        };
        Ok(Self {
            // The site says it as its user wants it.
            records: Records { json: true },
            places: Connections::new(connections::Room {
                all: CONNECTIONS_MAX,
                of_one,
            }),
            refusals: Refusals::new(Instant::now()),
            room: Room::default(),
            config,
            identity,
            acceptor,
        })
    }

    /// Serves a connection until it ends or the site does.
    pub(super) async fn visit(
        self: Arc<Self>,
        socket: TcpStream,
        client: SocketAddr,
        mut stopped: Stopped,
    ) {
        let crowded = || {
            let why = "too many connections";
            let cause = Cause::TooManyConnections;
            self.refusals.say(client, cause, why, self.records);
        };
        let Some(connection) = self.places.enter(client.ip()) else {
            return crowded();
        };
        if end_when_silent(&socket, SILENCE_TIMEOUT).is_err() {
            return;
        }
        let begin = Instant::now();
        tokio::select! {
            () = self.shake_hands(socket, client, &connection) => {}
            () = connection.overstays(AUTH_TIMEOUT) => if begin.elapsed() < AUTH_TIMEOUT {
                crowded();
            },
            () = stopped.reached() => {}
        }
    }

    async fn shake_hands(&self, socket: TcpStream, client: SocketAddr, connection: &Connection) {
        let Some(acceptor) = &self.acceptor else {
            return self.serve(socket, client, connection).await;
        };
        // What goes wrong with a client is the client's affair.
        if let Ok(tls) = acceptor.accept(socket).await {
            self.serve(tls, client, connection).await;
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        client: SocketAddr,
        connection: &Connection,
    ) {
        let lines = Lines::default();
        let mut stream = Watched::new(stream, &lines);
        let answer = async |request| {
            let (request, rest) = Received::of(request);
            let line = lines.of(&request);
            let mut answer = self.answer(request, client, line, connection).await;
            if !rest.read().await {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            lines.await_next();
            Ok::<_, Infallible>(held(answer))
        };
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(AUTH_TIMEOUT)
            .serve_connection(TokioIo::new(&mut stream), service_fn(answer));
        // What goes wrong with a client is the client's affair.
        if served.await.is_ok() {
            // One that still sends would lose the answer to a reset (RFC 9112 §9.6).
            let _ = timeout(LINGER, tokio::io::copy(&mut stream, &mut sink())).await;
        }
    }

    async fn answer(
        &self,
        request: Request<Received>,
        client: SocketAddr,
        line: Seen,
        connection: &Connection,
    ) -> Answer {
        let mut answer = match self.admitted(request, client, line, connection).await {
            Ok(answer) => answer,
            Err(refusal) => {
                if matches!(refusal, Refusal::WrongToken) {
                    let why = "the token is not one of its";
                    let refusals = &self.refusals;
                    sleep(refusals.say(client, Cause::WrongToken, why, self.records)).await;
                }
                refusal.answer()
            }
        };
        for (name, value) in ALWAYS {
            let value = HeaderValue::from_static(value);
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    async fn admitted(
        &self,
        request: Request<Received>,
        client: SocketAddr,
        line: Seen,
        connection: &Connection,
    ) -> Result<Answer, Refusal> {
        let config = &self.config;
        let visitor = Visitor::of(&request, config, &self.identity.fingerprint)?;
        connection.admit();
        if index::is_asked(&request) {
            return Ok(index::show(&visitor, config, &self.room, request).await);
        }
        let export = request.uri().path().split('/').nth(1).unwrap_or_default();
        let who = (visitor.token(), export);
        let entry = Entry::of(&request, client, who, self.records);
        if let Err((status, why)) = check_line(line, request.method()) {
            return Ok(entry.end(said(status, why)));
        }
        match visitor.enter(export, config, &self.room) {
            Ok(access) => Ok(dav::answer(access, request, entry).await),
            Err(refusal) => Ok(entry.end(refusal.answer())),
        }
    }
}

/// Whether nothing of a request's name is missing. One that only reads may do without being sure.
fn check_line(line: Seen, method: &Method) -> Result<(), Rejection> {
    let reads = method.is_safe() || method.as_str() == "PROPFIND";
    match line {
        Seen::WithFragment => Err((StatusCode::BAD_REQUEST, "\"#\" in a name is %23 in a URL")),
        Seen::Not if !reads => Err((
            StatusCode::BAD_REQUEST,
            "want no request that changes something before the answer to the one before it",
        )),
        _ => Ok(()),
    }
}

/// For HTTPS.
fn acceptor(config: &Config, identity: &Identity) -> Result<TlsAcceptor> {
    let certificate: &Certificate = match &config.certificate {
        Some(certificate) => certificate,
        None => &identity.certificate,
    };
    certificate.acceptor(b"http/1.1")
}
