// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding of requests to origin servers, and of their responses.

use crate::{
    client_protocols::http::{
        await_reply::AwaitReply,
        proxy::{
            Body, ClientRequest, ErrorResponse, FIELDS_MAX, Origin, OriginRequest, Proxy, Tunnel,
            no_response, unreadable_response,
        },
        response_timeout::{RequestBody, RequestProgress, ResponseBody, ResponseTimeout},
    },
    route::{request::Request, upstream_leg::UpstreamLeg},
    session::http_memory::HEAD_LEN_MAX,
};
use http_body_util::{Either, Empty};
use hyper::{
    Response, StatusCode,
    body::{Body as _, Incoming},
    ext::on_informational,
    header::UPGRADE,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use longhaul_protocol::{
    destination::Destination,
    failure::Failure,
    proxy_headers::{
        forward_request, forward_response, interim_response, is_framed_twice, unknown_coding,
        upgrade,
    },
};
use longhaul_units::Time;
use std::{
    mem::take,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};
use tokio::select;
use tracing::{Instrument as _, debug};

impl Proxy {
    /// Forwards a request and returns the response; bodies are streamed.
    pub(super) async fn forward(
        &self,
        mut request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, ErrorResponse> {
        let offered_upgrade =
            upgrade(request.version(), request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        forward_request(&mut head, &self.session.relay.pseudonym);
        let progress = Arc::default();
        let body = RequestBody::new(body, &progress, &self.exchange, &self.session.http);
        let mut request = hyper::Request::from_parts(head, Either::Left(body));
        self.forward_interim(&mut request, &progress);
        let mut persistent = self.origin.lock().await;
        let response = self
            .send_with_retry(&mut persistent, request, &progress, &destination)
            .await?;
        self.client_response(&mut persistent, response, offered_upgrade)
    }

    /// Forwards interim responses, 100 included, as they arrive (RFC 9110 §15.2).
    fn forward_interim(&self, request: &mut OriginRequest, progress: &Arc<RequestProgress>) {
        let (exchange, relay) = (self.exchange.clone(), self.session.relay.clone());
        let progress = progress.clone();
        on_informational(request, move |response| {
            let status = response.status();
            if status == StatusCode::CONTINUE && exchange.awaits_continue() {
                progress.on_continue();
            }
            let head = interim_response(status, response.headers(), &relay.pseudonym);
            exchange.queue_interim(&head);
        });
    }

    /// Sends a request over the persistent connection, else over a pooled one, else over a new one.
    /// A dead connection may return the request unsent; then the next is tried. If the request may
    /// have been sent, it is repeated only if that is safe (RFC 9110 §9.2.2).
    async fn send_with_retry(
        &self,
        persistent: &mut Option<Origin>,
        mut request: OriginRequest,
        progress: &Arc<RequestProgress>,
        destination: &Destination,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let new_connections = std::iter::repeat_n(ConnectionSource::New, NEW_CONNECTIONS_MAX);
        // After 101, the first leg is taken back from hyper, at a place that only one leg has.
        let may_stripe = !request.headers().contains_key(UPGRADE);
        // The request may have arrived each time, so it is repeated only once.
        let mut may_repeat = true;
        for source in [ConnectionSource::Persistent, ConnectionSource::Pooled]
            .into_iter()
            .chain(new_connections)
        {
            let connection = self.connection(source, persistent, destination, may_stripe);
            let Some(origin) = connection.await? else {
                continue;
            };
            let may_die = origin.is_reused || origin.upstream.awaits_answer();
            let copy = may_die.then(|| retryable_copy(&request)).flatten();
            request = match self.send(persistent, origin, request, progress).await {
                Ok(response) => return Ok(response),
                Err(SendError::NotSent(same)) => *same,
                Err(SendError::Failed(error_response)) => return Err(error_response),
                Err(SendError::Refused(error_response)) => copy.ok_or(error_response)?,
                Err(SendError::ConnectionLost(error_response)) => copy
                    .filter(|_| take(&mut may_repeat))
                    .ok_or(error_response)?,
            };
        }
        Err(no_response("closed at once"))
    }

    async fn connection(
        &self,
        source: ConnectionSource,
        persistent: &mut Option<Origin>,
        destination: &Destination,
        may_stripe: bool,
    ) -> Result<Option<Origin>, ErrorResponse> {
        let request = || Request {
            may_stripe,
            ..Request::to(destination.clone(), Vec::new()).with_longest_reply_delay()
        };
        let upstream = match source {
            ConnectionSource::Persistent => {
                let origin = persistent.take().filter(|origin| {
                    origin.can_serve(destination) && (may_stripe || !origin.may_stripe())
                });
                return Ok(origin.map(|origin| Origin {
                    is_reused: true,
                    ..origin
                }));
            }
            ConnectionSource::Pooled => self.session.open(&request()).await?,
            ConnectionSource::New => self.session.open_new_leg(&request()).await?,
        };
        self.start_http(destination, upstream).await.map(Some)
    }

    /// Converts the response for the client. After 101 (RFC 9110 §7.8), both legs leave HTTP once
    /// it is written.
    fn client_response(
        &self,
        persistent: &mut Option<Origin>,
        mut response: Response<ResponseBody>,
        offered_upgrade: Option<OnUpgrade>,
    ) -> Result<Response<Body>, ErrorResponse> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(origin)) = (offered_upgrade, persistent.take()) else {
                return Err(no_response("101, though no upgrade was offered"));
            };
            self.set_tunnel(Tunnel {
                client,
                origin: Some(hyper::upgrade::on(&mut response)),
                upstream: origin.upstream,
            });
        }
        let (mut head, body) = response.into_parts();
        forward_response(&mut head, &self.session.relay.pseudonym);
        Ok(Response::from_parts(head, Either::Left(body)))
    }

    async fn send(
        &self,
        persistent: &mut Option<Origin>,
        mut origin: Origin,
        request: OriginRequest,
        progress: &Arc<RequestProgress>,
    ) -> Result<Response<ResponseBody>, SendError> {
        *self.last_upstream.lock() = Arc::downgrade(&origin.upstream);
        let limit = self.session.setup.config.limits.response_timeout;
        let mut response_timeout = ResponseTimeout::new(&origin.upstream, progress, limit);
        (*origin.progress.lock()).clone_from(progress);
        debug!(reused = origin.is_reused, "HTTP request sent");
        let sent = select! {
            sent = origin.sender.try_send_request(request) => sent,
            never = self.probe_gone_client() => match never {},
            () = response_timeout.expired() => {
                let reason = format!("no response from the origin for {}", Time::from(limit));
                return Err(SendError::Failed(ErrorResponse {
                    error: Some("http_response_timeout"),
                    ..ErrorResponse::new(Failure::TimedOut, reason)
                }));
            }
        };
        let mut error = match sent {
            Ok(response) => {
                debug!(status = response.status().as_u16(), "HTTP response begins");
                check_coding(&response).map_err(SendError::Failed)?;
                self.session.stop_request_timer();
                let mut response =
                    response.map(|body| ResponseBody::new(body, response_timeout, &self.exchange));
                // A client that still waits for 100 will not send its body, or sends it unread.
                let refused = self.exchange.awaits_continue();
                if refused {
                    progress.body_refused.store(true, Relaxed);
                }
                if refused || is_framed_twice(response.headers()) {
                    response
                        .body_mut()
                        .close_after(origin.connection.abort_handle());
                } else {
                    *persistent = Some(origin);
                }
                return Ok(response);
            }
            Err(error) => error,
        };
        let loss = match error.take_message() {
            Some(request) if origin.fault.get().is_none() => SendError::NotSent(Box::new(request)),
            _ => self.classify_loss(&origin, &error.into_error()).await,
        };
        // The session keeps the socket for its record: an origin that still sends would wait.
        origin.upstream.reset();
        Err(loss)
    }

    /// Classifies the loss of a request that was sent and had no response.
    async fn classify_loss(&self, origin: &Origin, error: &hyper::Error) -> SendError {
        let request = Request::to(origin.destination.clone(), Vec::new());
        match origin.fault.get() {
            Some(fault) => {
                if self.session.may_repeat(&origin.upstream, &request).await {
                    SendError::Refused(fault.clone().into())
                } else {
                    SendError::Failed(fault.clone().into())
                }
            }
            None if error.is_parse() => SendError::Failed(unreadable_response(error)),
            None => SendError::ConnectionLost(no_response(&error.to_string())),
        }
    }

    /// Starts HTTP on an upstream connection. Requests follow the peer's preamble at once, and its
    /// reply is read before the first response: that saves a round trip (RFC 8803 §3).
    async fn start_http(
        &self,
        destination: &Destination,
        upstream: UpstreamLeg,
    ) -> Result<Origin, ErrorResponse> {
        let upstream = Arc::new(upstream);
        let fault = Arc::new(OnceLock::new());
        let progress = Arc::default();
        let io = TokioIo::new(AwaitReply::new(
            upstream.clone(),
            self.session.joinable_group(&upstream),
            self.session.limited_leg_reporter(),
            fault.clone(),
            Arc::clone(&progress),
        ));
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(FIELDS_MAX)
            .max_buf_size(HEAD_LEN_MAX)
            // RFC 9112 §5.1 and §5.2: a proxy removes both.
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .handshake(io)
            .await
            .map_err(|error| no_response(&error.to_string()))?;
        // The task ends with its sender, its response body, or its error, which the body reports.
        let connection = tokio::spawn(connection.with_upgrades().in_current_span());
        Ok(Origin {
            destination: destination.clone(),
            sender,
            is_reused: upstream.was_pooled,
            upstream,
            fault,
            progress,
            connection,
            _counted: self.session.http.connection(),
        })
    }
}

/// Most new connections for one request: one, and one more for each peer that is down.
const NEW_CONNECTIONS_MAX: usize = 4;

/// Source of a connection to an origin.
#[derive(Debug, Clone, Copy)]
enum ConnectionSource {
    Persistent,
    /// A pooled connection to a peer, or a new one.
    Pooled,
    New,
}

/// Copy of the request for a repetition, if it is idempotent and has no body.
fn retryable_copy(request: &OriginRequest) -> Option<OriginRequest> {
    let is_safe = request.method().is_idempotent() && request.body().is_end_stream();
    is_safe.then(|| {
        let mut copy = OriginRequest::new(Either::Right(Empty::new()));
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        *copy.version_mut() = request.version();
        copy.headers_mut().clone_from(request.headers());
        copy.extensions_mut().clone_from(request.extensions());
        copy
    })
}

/// Refuses a body with a transfer coding: the coding ends here, and the client would not know of it.
fn check_coding(response: &Response<Incoming>) -> Result<(), ErrorResponse> {
    match unknown_coding(response.headers()) {
        Some(coding) if !response.body().is_end_stream() => Err(ErrorResponse {
            error: Some("http_response_transfer_coding"),
            ..no_response(&format!("its transfer coding {coding:?} is not supported"))
        }),
        _ => Ok(()),
    }
}

impl Origin {
    fn can_serve(&self, destination: &Destination) -> bool {
        self.destination == *destination && self.sender.is_ready()
    }

    fn may_stripe(&self) -> bool {
        self.upstream.group.is_some()
    }

    /// Ends the connection. Several legs end together, which takes a round trip; a single one needs no wait.
    pub(super) async fn close(self) {
        let is_striped = self.upstream.bundle().is_some();
        drop(self.sender);
        if is_striped {
            let _ = self.connection.await;
        }
    }
}

/// Cause of a missing response.
enum SendError {
    /// Nothing was sent; the request can be repeated.
    NotSent(Box<OriginRequest>),
    /// The request failed for good.
    Failed(ErrorResponse),
    /// A peer on the path did not forward it; there is another route.
    Refused(ErrorResponse),
    /// The connection was lost; the request may have arrived.
    ConnectionLost(ErrorResponse),
}
