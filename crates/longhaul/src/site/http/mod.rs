// SPDX-License-Identifier: MIT OR Apache-2.0
//! A site's exports over HTTP and WebDAV, for programs that know nothing of longhaul: `/EXPORT/PATH`.
//!
//! hyper speaks HTTP, dav-server the methods of RFC 4918 on what [`files`] shows it of an export; who may is
//! [`access`].

mod access;
mod files;
mod index;
mod reading;
mod replacement;
mod target;
mod tree;
mod upload;

use super::{
    certificate::Certificate, config::Config, identity::Identity, knock::PATIENCE, news::News,
    stop::Stopped,
};
use crate::copy;
use access::{Access, Refusal, Visitor};
use anyhow::Result;
use dav_server::{DavConfig, body::Body, fakels::FakeLs};
use files::Files;
use futures_util::FutureExt;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc};
use target::Target;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// Connections at once, at most: each costs some 200 KB while a body moves.
const CONNECTIONS_MAX: usize = 128;

/// On every answer. What somebody has put into an export is shown, but runs nothing in the name of who looks at it.
const ALWAYS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "sandbox allow-downloads; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// Methods after which nothing is new.
const READ_ONLY: [&str; 6] = ["GET", "HEAD", "OPTIONS", "PROPFIND", "LOCK", "UNLOCK"];

type Answer = Response<Body>;

/// What all connections have.
#[derive(Clone)]
pub(super) struct Http {
    config: Arc<Config>,
    identity: Arc<Identity>,
    news: Arc<News>,
    connections: Arc<Semaphore>,
}

impl Http {
    pub(super) fn new(config: &Arc<Config>, identity: Identity, news: Arc<News>) -> Self {
        Self {
            config: config.clone(),
            identity: Arc::new(identity),
            news,
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// For HTTPS.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor> {
        let certificate: &Certificate = match &self.config.certificate {
            Some(certificate) => certificate,
            None => &self.identity.certificate,
        };
        certificate.acceptor(b"http/1.1")
    }

    /// Serves a connection until it ends or the site does.
    pub(super) async fn serve_plain(self, socket: TcpStream, mut stopped: Stopped) {
        let Ok(_one_of) = self.connections.clone().try_acquire_owned() else {
            return;
        };
        if copy::end_when_silent(&socket, copy::SILENCE).is_err() {
            return;
        }
        tokio::select! {
            () = self.serve(socket) => {}
            () = stopped.reached() => {}
        }
    }

    /// The same after a handshake.
    pub(super) async fn serve_tls(
        self,
        socket: TcpStream,
        acceptor: TlsAcceptor,
        mut stopped: Stopped,
    ) {
        let Ok(_one_of) = self.connections.clone().try_acquire_owned() else {
            return;
        };
        if copy::end_when_silent(&socket, copy::SILENCE).is_err() {
            return;
        }
        let served = async {
            // What goes wrong with a client is the client's affair.
            if let Ok(Ok(tls)) = timeout(PATIENCE, acceptor.accept(socket)).await {
                self.serve(tls).await;
            }
        };
        tokio::select! {
            () = served => {}
            () = stopped.reached() => {}
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(async |request| Ok::<_, Infallible>(self.answer(request).await));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service);
        // What goes wrong with a client is the client's affair.
        let _ = served.await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answered = self.admitted(request).await;
        let mut answer = answered.unwrap_or_else(|refusal| refusal.answer());
        for (name, value) in ALWAYS {
            let value = HeaderValue::from_static(value);
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    async fn admitted(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let config = &self.config;
        let visitor = Visitor::of(&request, config, &self.identity.fingerprint)?;
        if index::is_asked(&request) {
            return Ok(index::page(&visitor.exports(config)));
        }
        let export = request.uri().path().split('/').nth(1).unwrap_or_default();
        let access = visitor.enter(export, config)?;
        let reads = READ_ONLY.contains(&request.method().as_str());
        let export = access.export.clone();
        let answer = dav(access, request).await;
        if !reads && answer.status().is_success() {
            self.news.came(&export);
        }
        Ok(answer)
    }
}

async fn dav(access: Access, mut request: Request<Incoming>) -> Answer {
    // With it, a client of a test suite may ask for a whole tree at once.
    request.headers_mut().remove("x-litmus");
    let target = match unsupported(&request) {
        Some(why) => Err((StatusCode::BAD_REQUEST, why)),
        None => Target::of(&mut request, &access.export),
    };
    let target = match target {
        Ok(target) => target,
        Err((status, why)) => return said(status, why),
    };
    let files = Files::of(&access);
    let Ok(files) = files else {
        return said(
            StatusCode::SERVICE_UNAVAILABLE,
            "the site cannot open what it exports",
        );
    };
    let changes_names = ["COPY", "DELETE", "MOVE"].contains(&request.method().as_str());
    let export = access.export.clone();
    let handle = move |files, request| handle(access.clone(), files, request);
    if !changes_names {
        return handle(files, request).await;
    }
    // What has begun goes on when the client is gone.
    let carried_out = tokio::spawn(async move {
        replacement::carry_out(files, target, &export, request, handle).await
    });
    carried_out.await.unwrap_or_else(|_| senseless())
}

/// What the library makes of a request.
async fn handle(access: Access, files: Files, request: Request<Incoming>) -> Answer {
    let handler = DavConfig::new()
        .strip_prefix(format!("/{}", access.export))
        .filesystem(Box::new(files))
        // Clients that mount want locks; these are granted to everyone.
        .locksystem(FakeLs::new())
        .principal(&access.token)
        .autoindex(true)
        .read_buf_size(reading::READ_LEN)
        .build_handler();
    // It panics at some headers that make no sense (an ETag of one quotation mark); that is to be the client's affair.
    let handled = AssertUnwindSafe(handler.handle(request)).catch_unwind();
    handled.await.unwrap_or_else(|_| senseless())
}

fn senseless() -> Answer {
    said(
        StatusCode::BAD_REQUEST,
        "what the request says makes no sense",
    )
}

/// A part of a file cannot be put: a file is there whole or not at all (RFC 9110 §14.5).
fn unsupported(request: &Request<Incoming>) -> Option<&'static str> {
    let partial = request.method() == hyper::Method::PATCH
        || request.method() == hyper::Method::PUT
            && request.headers().contains_key(header::CONTENT_RANGE);
    partial.then_some("a file is put whole: longhaul copy goes on where it was interrupted")
}

fn said(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Body::from(format!("{text}\n")));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}
