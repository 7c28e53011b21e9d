// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding of requests to origin servers, and of their responses.

use crate::{
    client_protocols::http::{
        answer::Answered,
        proxy::{
            Body, ClientRequest, Declined, FIELDS_MAX, OnwardRequest, Origin, Proxy, Tunnel,
            no_response,
        },
        silence::{Download, Progress, Silence, Upload},
    },
    route::{far::Far, request::Request},
    session::http_memory::HEAD_LEN_MAX,
};
use http_body_util::{Either, Empty};
use hyper::{Response, StatusCode, body::Body as _, ext::on_informational, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use longhaul_protocol::{
    destination::Destination,
    failure::Failure,
    proxy_headers::{interim_response, is_framed_twice, onward_request, onward_response, upgrade},
};
use longhaul_units::Time;
use std::{
    mem::take,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};
use tokio::select;

impl Proxy {
    /// Forwards a request and returns the response; bodies are streamed.
    pub(super) async fn pass_on(
        &self,
        mut request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, Declined> {
        let offered =
            upgrade(request.version(), request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        onward_request(&mut head, &self.session.relay.pseudonym);
        let progress = Arc::default();
        let body = Upload::new(body, &progress, &self.exchange, &self.session.http);
        let mut request = hyper::Request::from_parts(head, Either::Left(body));
        self.pass_on_interim(&mut request, &progress);
        let mut kept = self.origin.lock().await;
        let asked = (request, &progress);
        let response = self.ask(&mut kept, asked, &destination).await?;
        self.answer(&mut kept, response, offered)
    }

    /// Forwards interim responses, 100 included, as they arrive (RFC 9110 §15.2).
    fn pass_on_interim(&self, request: &mut OnwardRequest, progress: &Arc<Progress>) {
        let (exchange, relay) = (self.exchange.clone(), self.session.relay.clone());
        let progress = progress.clone();
        on_informational(request, move |response| {
            let status = response.status();
            if status == StatusCode::CONTINUE && exchange.is_held_back() {
                progress.invited();
            }
            let head = interim_response(status, response.headers(), &relay.pseudonym);
            exchange.interim(&head);
        });
    }

    /// Sends a request over the persistent connection, else over a pooled one, else over a new one.
    /// A dead connection may return the request unsent; then the next is tried. If the request may
    /// have been sent, it is repeated only if that is safe (RFC 9110 §9.2.2).
    async fn ask(
        &self,
        kept: &mut Option<Origin>,
        (mut request, progress): (OnwardRequest, &Arc<Progress>),
        destination: &Destination,
    ) -> Result<Response<Download>, Declined> {
        let ways = std::iter::repeat_n(Source::New, WAYS_MAX);
        // The request may have arrived each time, so it is repeated only once.
        let mut again = true;
        for source in [Source::Kept, Source::Ready].into_iter().chain(ways) {
            let Some(origin) = self.origin(source, kept, destination).await? else {
                continue;
            };
            let may_die = origin.stood || origin.far.owes_answer();
            let copy = may_die.then(|| harmless_copy(&request)).flatten();
            request = match self.send(kept, origin, (request, progress)).await {
                Ok(response) => return Ok(response),
                Err(Unsent::GivenBack(same)) => *same,
                Err(Unsent::Lost(declined)) => return Err(declined),
                Err(Unsent::Refused(declined)) => copy.ok_or(declined)?,
                Err(Unsent::Died(declined)) => copy.filter(|_| take(&mut again)).ok_or(declined)?,
            };
        }
        Err(no_response("closed at once"))
    }

    async fn origin(
        &self,
        source: Source,
        kept: &mut Option<Origin>,
        destination: &Destination,
    ) -> Result<Option<Origin>, Declined> {
        let request = || Request::to(destination.clone(), Vec::new()).unanswered();
        let far = match source {
            Source::Kept => {
                let origin = kept.take().filter(|origin| origin.serves(destination));
                return Ok(origin.map(|origin| Origin {
                    stood: true,
                    ..origin
                }));
            }
            Source::Ready => self.session.open(&request()).await?,
            Source::New => self.session.open_anew(&request()).await?,
        };
        self.speak(destination, far).await.map(Some)
    }

    /// Converts the response for the client. After 101 (RFC 9110 §7.8), both legs leave HTTP once
    /// it is written.
    fn answer(
        &self,
        kept: &mut Option<Origin>,
        mut response: Response<Download>,
        offered: Option<OnUpgrade>,
    ) -> Result<Response<Body>, Declined> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(origin)) = (offered, kept.take()) else {
                return Err(no_response("101, though no upgrade was offered"));
            };
            self.leave_http(Tunnel {
                client,
                origin: Some(hyper::upgrade::on(&mut response)),
                far: origin.far,
            });
        }
        let (mut head, body) = response.into_parts();
        onward_response(&mut head, &self.session.relay.pseudonym);
        Ok(Response::from_parts(head, Either::Left(body)))
    }

    async fn send(
        &self,
        kept: &mut Option<Origin>,
        mut origin: Origin,
        (request, progress): (OnwardRequest, &Arc<Progress>),
    ) -> Result<Response<Download>, Unsent> {
        *self.asked.lock() = Arc::downgrade(&origin.far);
        let limit = self.session.config.limits.response_timeout;
        let mut silence = Silence::new(&origin.far, progress, limit);
        (*origin.current.lock()).clone_from(progress);
        let sent = select! {
            sent = origin.sender.try_send_request(request) => sent,
            () = silence.too_long() => {
                let reason = format!("the origin has said nothing for {}", Time::from(limit));
                return Err(Unsent::Lost(Declined {
                    error: Some("http_response_timeout"),
                    ..Declined::new(Failure::TimedOut, reason)
                }));
            }
        };
        let mut error = match sent {
            Ok(response) => {
                self.session.hears_answer();
                let mut response =
                    response.map(|body| Download::new(body, silence, &self.exchange));
                // A client that still waits for 100 will not send its body, or sends it unread.
                let refused = self.exchange.is_held_back();
                if refused {
                    progress.refused.store(true, Relaxed);
                }
                match refused || is_framed_twice(response.headers()) {
                    true => response.body_mut().is_last_of(origin.connection),
                    false => *kept = Some(origin),
                }
                return Ok(response);
            }
            Err(error) => error,
        };
        match error.take_message() {
            Some(request) if origin.refused.get().is_none() => {
                Err(Unsent::GivenBack(Box::new(request)))
            }
            _ => Err(self.lost(&origin, &error.into_error()).await),
        }
    }

    /// Classifies the loss of a request that was sent and had no response.
    async fn lost(&self, origin: &Origin, error: &hyper::Error) -> Unsent {
        let wanted = Request::to(origin.destination.clone(), Vec::new());
        match origin.refused.get() {
            Some(fault) if origin.far.was_stale() => Unsent::Refused(fault.clone().into()),
            Some(fault) => match self.session.has_other_way(&origin.far, &wanted).await {
                true => Unsent::Refused(fault.clone().into()),
                false => Unsent::Lost(fault.clone().into()),
            },
            None if error.is_parse() => Unsent::Lost(no_response(&error.to_string())),
            None => Unsent::Died(no_response(&error.to_string())),
        }
    }

    /// Starts HTTP on an upstream connection. Requests follow the peer's preamble at once, and its
    /// reply is read before the first response: that saves a round trip (RFC 8803 §3).
    async fn speak(&self, destination: &Destination, far: Far) -> Result<Origin, Declined> {
        let far = Arc::new(far);
        let refused = Arc::new(OnceLock::new());
        let current = Arc::default();
        let io = TokioIo::new(Answered::new(
            far.clone(),
            refused.clone(),
            Arc::clone(&current),
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
        let connection = tokio::spawn(connection.with_upgrades());
        Ok(Origin {
            destination: destination.clone(),
            sender,
            stood: far.stood_ready(),
            far,
            refused,
            current,
            connection: connection.abort_handle(),
            _counted: self.session.http.connection(),
        })
    }
}

/// Most new connections for one request: one, and one more for each peer that is down.
const WAYS_MAX: usize = 4;

/// Source of a connection to an origin.
#[derive(Debug, Clone, Copy)]
enum Source {
    Kept,
    /// A pooled connection to a peer, or a new one.
    Ready,
    New,
}

/// Copy of the request for a repetition, if it is idempotent and has no body.
fn harmless_copy(request: &OnwardRequest) -> Option<OnwardRequest> {
    let harmless = request.method().is_idempotent() && request.body().is_end_stream();
    harmless.then(|| {
        let mut copy = OnwardRequest::new(Either::Right(Empty::new()));
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        *copy.version_mut() = request.version();
        copy.headers_mut().clone_from(request.headers());
        copy.extensions_mut().clone_from(request.extensions());
        copy
    })
}

impl Origin {
    fn serves(&self, destination: &Destination) -> bool {
        self.destination == *destination && self.sender.is_ready()
    }
}

/// Cause of a missing response.
enum Unsent {
    /// Nothing was sent; the request can be repeated.
    GivenBack(Box<OnwardRequest>),
    /// The request failed for good.
    Lost(Declined),
    /// A peer on the path did not forward it; there is another route.
    Refused(Declined),
    /// The connection was lost; the request may have arrived.
    Died(Declined),
}
