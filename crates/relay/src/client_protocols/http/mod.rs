// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1 proxy clients (RFC 9110 §3.7): CONNECT becomes a tunnel; http:// requests are forwarded
//! one by one over a persistent connection.

mod await_reply;
mod deferred_error;
mod exchange;
mod ftp_request;
mod gone_client;
mod head_timer;
mod message_stream;
mod origin;
mod proxy;
mod rate_limited_io;
mod request_log;
mod response_timeout;
mod trailers;

use crate::{
    client_protocols::{
        handshake::{lingering_close, reply_and_close},
        http::{
            await_reply::AwaitReply,
            deferred_error::DeferredError,
            exchange::Exchange,
            head_timer::HeadTimer,
            message_stream::MessageStream,
            proxy::{
                Body, ClientRequest, ErrorResponse, FIELDS_MAX, Proxy, Tunnel, own_body,
                text_response, text_response_bytes,
            },
            rate_limited_io::RateLimitedIo,
            request_log::{LoggedBody, RequestLog},
        },
    },
    leg::stream::LegStream,
    relay::Phase,
    route::request::Request,
    session::{Session, client::LoginResult, http_memory::HEAD_LEN_MAX},
    transfer::{End, Side},
};
use bytes::Bytes;
use http_body_util::Either;
use hyper::{
    Method, Response, StatusCode, header, server::conn::http1, service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use longhaul_admission::rate_limits::Direction;
use longhaul_protocol::{
    destination::Destination,
    failure::Failure,
    proxy_headers::{
        ambiguity, credentials, destination, has_passed, is_ftp, max_forwards, trace_response,
        unknown_coding,
    },
};
use longhaul_transport::leg::Leg;
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
};
use tracing::debug;

/// Field that names the cause of an error (RFC 9209 §2).
const PROXY_STATUS: header::HeaderName = header::HeaderName::from_static("proxy-status");

/// Serves requests until the client leaves, or a tunnel begins.
type Requests<'a> = Pin<Box<dyn Future<Output = Option<End>> + Send + 'a>>;

/// Serves one client until it leaves, or until its tunnel ends.
pub(crate) async fn serve(session: &Arc<Session>) -> End {
    let proxy = Arc::new(Proxy {
        session: session.clone(),
        exchange: Arc::default(),
        origin: tokio::sync::Mutex::default(),
        last_upstream: Mutex::default(),
        tunnel: Mutex::default(),
        last_log: Mutex::default(),
    });
    // Boxed, so that a tunnel takes no memory for it.
    let requests: Requests<'_> = Box::pin(async {
        let mut messages = open_stream(session, &proxy.exchange);
        if let Err(end) = await_head(&proxy, &mut messages).await {
            return Some(end);
        }
        // Boxed, so that a client whose first head is incomplete takes no memory for an exchange.
        Box::pin(run_exchange(&proxy, messages)).await
    });
    if let Some(end) = requests.await {
        return end;
    }
    let tunnel = proxy.tunnel.lock().take();
    match tunnel {
        Some(tunnel) => {
            let end = Box::pin(run_tunnel(session, tunnel)).await;
            if let Some(log) = proxy.last_log.lock().take() {
                log.end_tunnel(&end);
            }
            end
        }
        None => {
            // A close with unread bytes could destroy the response in flight (RFC 9112 §9.6).
            if proxy.exchange.has_unread_request() {
                Box::pin(lingering_close(&session.client_leg())).await;
            }
            let origin = proxy.origin.lock().await.take();
            if let Some(origin) = origin {
                Box::pin(origin.close()).await;
            }
            End::Finished
        }
    }
}

fn open_stream(session: &Arc<Session>, exchange: &Arc<Exchange>) -> MessageStream {
    let counting_session = session.clone();
    let stream = LegStream::new(Leg::plain(session.client.stream.clone()), true)
        .counting(Box::new(move |read, written| {
            counting_session.count_bytes(Direction::Up, read);
            counting_session.count_bytes(Direction::Down, written);
        }))
        .reporting(session.limited_leg_reporter());
    let (limits, memory) = (session.rate_limits().clone(), session.http.clone());
    let rate_limited = RateLimitedIo::new(stream, limits, memory.clone());
    let timer = HeadTimer::new(&session.relay, &session.setup.config.limits, &memory);
    MessageStream::new(rate_limited, exchange.clone(), memory, timer)
}

/// Waits for the first head. If the client leaves, stays idle for too long, or the relay drains before the client has
/// sent a byte, the session ends without an error.
async fn await_head(proxy: &Proxy, messages: &mut MessageStream) -> Result<(), End> {
    let mut draining = pin!(proxy.session.relay.lifecycle.wait_for(Phase::Drain));
    let head = poll_fn(|cx| match messages.poll_head(cx) {
        Poll::Pending if messages.has_no_input() => draining.as_mut().poll(cx).map(Ok),
        polled => polled,
    });
    match (head.await, proxy.exchange.take_refusal()) {
        (Ok(()), _) if messages.has_no_input() => Err(End::Finished),
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(refusal)) => Err(proxy.send_refusal(refusal, None).await),
        (Err(error), _) => Err(End::Broken(Side::Downstream, error)),
    }
}

/// Side that caused an error: the origin if a response body failed by itself, else the client.
fn failed_side(error: &hyper::Error, exchange: &Exchange) -> Side {
    if error.is_user() && !exchange.has_failed_request() {
        Side::Upstream
    } else {
        Side::Downstream
    }
}

/// Runs the exchange, and returns how it ended if it failed. While an origin is silent, nothing
/// reads from the client or writes to it. So this function watches for a reset by the client, or
/// for a keepalive that gets no answer.
async fn run_exchange(proxy: &Arc<Proxy>, messages: MessageStream) -> Option<End> {
    // The exchange is kept until its leg is reset, because dropping it would end it cleanly.
    let exchange = serve_requests(proxy, messages);
    tokio::pin!(exchange);
    select! {
        biased;
        outcome = exchange.as_mut() => match (proxy.exchange.take_refusal(), outcome) {
            (Some(refusal), outcome) => Some(proxy.send_refusal(refusal, outcome.err()).await),
            (None, Ok(())) => None,
            (None, Err(error)) => Some(proxy.on_exchange_error(error).await),
        },
        error = proxy.session.client.stream.wait_error() => {
            proxy.reset_origin();
            Some(End::Broken(Side::Downstream, error))
        }
    }
}

/// Serves requests until the client leaves or CONNECT succeeds.
async fn serve_requests(proxy: &Arc<Proxy>, messages: MessageStream) -> hyper::Result<()> {
    let session = proxy.session.clone();
    let _connection_count = session.http.connection();
    let io = TokioIo::new(messages);
    let handler = proxy.clone();
    let service = service_fn(move |request| {
        let proxy = handler.clone();
        proxy.exchange.begin(&request);
        async move { Ok::<_, Infallible>(proxy.respond(request).await) }
    });
    let connection = http1::Builder::new()
        .max_headers(FIELDS_MAX)
        .max_header_size(HEAD_LEN_MAX)
        .max_buf_size(HEAD_LEN_MAX)
        .half_close(true)
        .preserve_header_case(true)
        .serve_connection(io, service)
        .with_upgrades();
    tokio::pin!(connection);
    let outcome = select! {
        outcome = connection.as_mut() => outcome,
        () = session.relay.lifecycle.wait_for(Phase::Drain) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if outcome.is_err() {
        // To drop an exchange would end its leg to the origin cleanly.
        proxy.reset_origin();
    }
    outcome
}

impl Proxy {
    async fn respond(&self, request: ClientRequest) -> Response<LoggedBody<DeferredError<Body>>> {
        let mut log = RequestLog::begin(&self.session, &self.exchange, &request);
        let response = self.answer(request, log.as_deref_mut()).await;
        let (is_refused, is_tunnel) = (self.exchange.is_refused(), self.tunnel.lock().is_some());
        if let Some(log) = log.as_mut().filter(|_| !is_refused) {
            log.respond(response.status());
            if is_tunnel || matches!(response.body(), Either::Left(_)) {
                log.set_destination();
            }
            if is_tunnel {
                log.begin_tunnel();
            }
        }
        if is_tunnel || is_refused {
            *self.last_log.lock() = log.take();
        }
        response.map(|body| LoggedBody::new(DeferredError::new(body, &self.exchange), log))
    }

    async fn answer(
        &self,
        request: ClientRequest,
        mut log: Option<&mut RequestLog>,
    ) -> Response<Body> {
        self.session.start_request_timer();
        self.session.http.end_message();
        if let Some(reason) = ambiguity(request.method(), request.version(), request.headers()) {
            let status = StatusCode::BAD_REQUEST;
            self.exchange.refuse(status, Some(reason.to_owned()));
            return Response::new(own_body(Bytes::new()));
        }
        if let Some(coding) = unknown_coding(request.headers()) {
            let reason = format!("the transfer coding {coding:?} is not supported: chunked is");
            self.exchange
                .refuse(StatusCode::NOT_IMPLEMENTED, Some(reason));
            return Response::new(own_body(Bytes::new()));
        }
        let checked = self.authorize(&request).await;
        let wanted = checked
            .as_ref()
            .map_or_else(|_| String::new(), ToString::to_string);
        let outcome = match checked {
            Ok(destination) => self.serve(request, destination).await,
            Err(error_response) => {
                if let Some(log) = &mut log {
                    log.forget_user();
                }
                Err(error_response)
            }
        };
        let mut response = outcome.unwrap_or_else(|error_response| {
            if !self.exchange.is_refused() {
                self.session
                    .listener
                    .counters
                    .count_failure(error_response.fault.failure);
            }
            let status = error_response.status.as_u16();
            debug!(status, "HTTP error response: {}", error_response.cause());
            if let Some(log) = &mut log {
                log.fail(&error_response.cause());
            }
            self.error_response(error_response, &wanted)
        });
        let is_tunnel = response.status().is_success();
        if self.exchange.awaits_continue() || (self.exchange.has_ambiguous_end() && !is_tunnel) {
            // The client may still send a body, but nothing reads it (RFC 9110 §10.1.1).
            let close = header::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// Replies to a request that can't be parsed. The reply has a reason, which hyper's own reply
    /// lacks.
    async fn send_refusal(
        &self,
        (status, reason): (StatusCode, Option<String>),
        error: Option<hyper::Error>,
    ) -> End {
        let reason = reason.or(error.map(|error| format!("the request can't be read: {error}")));
        let reason = reason.unwrap_or_default();
        let unread = || RequestLog::begin_unread(&self.session, &self.exchange);
        if let Some(mut log) = self.last_log.lock().take().or_else(unread) {
            log.fail(&reason);
            log.respond(status);
        }
        let answer = text_response_bytes(status, &reason);
        Box::pin(reply_and_close(&self.session.client_leg(), &answer)).await;
        self.session.fail(match status {
            StatusCode::REQUEST_TIMEOUT => Failure::HandshakeTimeout,
            _ => Failure::BadRequest,
        })
    }

    /// Returns an error response with a message and a Proxy-Status field (RFC 9209). It names other
    /// relays as this relay's configuration does.
    fn error_response(&self, error_response: ErrorResponse, wanted: &str) -> Response<Body> {
        let ErrorResponse {
            fault,
            status,
            reason,
            error,
        } = error_response;
        let peers = &self.session.setup.peers;
        let fault =
            fault.with_names(|address| Some(peers.find_by_address(address)?.config.name.clone()));
        let mut response = text_response(status, &reason.unwrap_or_else(|| fault.message(wanted)));
        let error = error.unwrap_or(fault.error_type());
        let field = fault.proxy_status(&self.session.relay.pseudonym, wanted, error);
        if let (false, Ok(field)) = (error.is_empty(), header::HeaderValue::try_from(field)) {
            response.headers_mut().insert(PROXY_STATUS, field);
        }
        response
    }

    async fn serve(
        &self,
        request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, ErrorResponse> {
        if request.method() == Method::CONNECT {
            return self.connect(request, destination).await;
        }
        if is_ftp(request.uri()) {
            return self.ftp(request, &destination).await;
        }
        match max_forwards(request.method(), request.headers()) {
            Some(0) => Ok(answer_locally(&request)),
            _ => self.forward(request, destination).await,
        }
    }

    /// Checks the Proxy-Authorization field (RFC 9110 §11.7.1).
    async fn authenticate(&self, request: &ClientRequest) -> LoginResult {
        let Some(users) = &self.session.setup.listener_config.users else {
            return LoginResult::Accepted;
        };
        match credentials(request.headers(), header::PROXY_AUTHORIZATION) {
            Some((user, password)) => self.session.authenticate(users, &user, &password).await,
            None => LoginResult::Rejected,
        }
    }

    async fn authorize(&self, request: &ClientRequest) -> Result<Destination, ErrorResponse> {
        match self.authenticate(request).await {
            LoginResult::Accepted => {}
            LoginResult::Rejected => {
                return Err(ErrorResponse::unauthenticated(
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                    "this proxy requires a user and a password",
                ));
            }
            LoginResult::NotChecked => {
                return Err(ErrorResponse::unauthenticated(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many wrong passwords for this user came from this address: this one was not checked, try again later",
                ));
            }
        }
        let bad = |reason| ErrorResponse::new(Failure::BadRequest, reason);
        let destination = destination(request.method(), request.uri()).map_err(bad)?;
        if has_passed(request.headers(), &self.session.relay.pseudonym) {
            return Err(Failure::Loop.into());
        }
        Ok(destination)
    }

    /// Serves CONNECT (RFC 9110 §9.3.6). The response waits for the destination.
    async fn connect(
        &self,
        mut request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, ErrorResponse> {
        let wanted = Request {
            may_stripe: true,
            ..Request::to(destination, Vec::new())
        };
        let upstream = self.session.open_and_await_answer(&wanted).await?;
        self.set_tunnel(Tunnel {
            client: hyper::upgrade::on(&mut request),
            origin: None,
            upstream: Arc::new(upstream),
        });
        Ok(Response::new(own_body(Bytes::new())))
    }

    /// Handles an exchange that did not end with a clean close between two requests.
    async fn on_exchange_error(&self, error: hyper::Error) -> End {
        // A message was truncated on one side, so it must not end cleanly on the other (invariant
        // 3 in ARCHITECTURE.md).
        if let Some(origin) = &*self.origin.lock().await {
            origin.upstream.reset_on_close();
        }
        let side = failed_side(&error, &self.exchange);
        if side == Side::Upstream {
            let patience = self.session.setup.config.limits.stall_timeout;
            self.session.deliver(patience).await;
        }
        End::Broken(side, io::Error::other(error))
    }

    /// Resets the connection to the origin after the client has left in mid-exchange.
    fn reset_origin(&self) {
        let persistent = self.origin.try_lock().ok();
        if let Some(Some(idle)) = persistent.as_deref()
            && idle.sender.is_ready()
        {
            return idle.upstream.reset_on_close();
        }
        // The origin still owes all or part of a response; hyper would end the connection cleanly.
        let last_upstream = self.last_upstream.lock();
        if let Some(upstream) = last_upstream.upgrade() {
            upstream.reset();
        }
    }
}

/// Answers TRACE and OPTIONS with Max-Forwards 0 (RFC 9110 §7.6.2).
fn answer_locally(request: &ClientRequest) -> Response<Body> {
    let trace = request.method() == Method::TRACE;
    let body = if trace {
        trace_response(request.method(), request.uri(), request.headers())
    } else {
        Vec::new()
    };
    let mut response = Response::new(own_body(body));
    if trace {
        let echo = header::HeaderValue::from_static("message/http");
        response.headers_mut().insert(header::CONTENT_TYPE, echo);
    }
    response
}

/// Relays bytes after CONNECT or an upgrade. Bytes that hyper has read ahead are sent first; later
/// bytes bypass hyper.
async fn run_tunnel(session: &Session, tunnel: Tunnel) -> End {
    let Tunnel {
        client,
        origin,
        upstream,
    } = tunnel;
    let from_client = match reclaim_connection::<MessageStream>(client).await {
        Ok((read, messages)) => [read, messages.into_read_ahead()].concat(),
        Err(error) => return End::Broken(Side::Downstream, error),
    };
    session.http.end_message();
    let from_origin = match origin {
        Some(origin) => reclaim_connection::<AwaitReply>(origin)
            .await
            .map(|(read, _)| read),
        None => Ok(Bytes::new()),
    };
    let from_origin = match from_origin {
        Ok(read) => read,
        Err(error) => return End::Broken(Side::Upstream, error),
    };
    match upstream.send_early_bytes(&from_client).await {
        Ok(()) => session.transfer(&upstream, &from_origin).await,
        Err(error) => End::Broken(Side::Upstream, error),
    }
}

/// Takes a connection back from hyper: the bytes read after the last message, and the stream.
async fn reclaim_connection<T>(upgrade: OnUpgrade) -> io::Result<(Bytes, T)>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    match upgraded.downcast::<TokioIo<T>>() {
        Ok(parts) => Ok((parts.read_buf, parts.io.into_inner())),
        Err(_) => unreachable!("the connection was served on this type"),
    }
}
