// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1 proxy clients (RFC 9110 §3.7): CONNECT becomes a tunnel, http:// requests are passed on
//! one by one while the connection is kept alive.

use crate::relay::{
    counters::Direction,
    drain::Phase,
    failure::Failure,
    leg::Leg,
    proxy_headers::{destination, has_passed, onward_request, onward_response},
    route::{Far, Request},
    session::Session,
    stream::{Shared, write_all},
    transfer::{End, Side},
};
use bytes::Bytes;
use host::socket::reset_on_close;
use http_body_util::{Either, Full};
use hyper::{
    Method, Response, StatusCode,
    body::Incoming,
    client::conn::http1::SendRequest,
    header,
    server::conn::http1,
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::select;
use wire::destination::Destination;

type ClientRequest = hyper::Request<Incoming>;
type Body = Either<Incoming, Full<Bytes>>;

/// One client's proxy.
struct Proxy {
    session: Arc<Session>,
    /// The origin of the last request, for the next one.
    origin: tokio::sync::Mutex<Option<Origin>>,
    /// What a CONNECT leaves behind for the time after its response.
    tunnel: Mutex<Option<(OnUpgrade, Far)>>,
}

/// A connection to an origin server that can take the next request.
struct Origin {
    destination: Destination,
    sender: SendRequest<Incoming>,
    stream: Leg,
}

/// A request that gets an answer from the proxy itself.
struct Declined {
    failure: Failure,
    reason: String,
}

impl From<Failure> for Declined {
    fn from(failure: Failure) -> Self {
        let reason = failure.to_string();
        Self { failure, reason }
    }
}

/// Serves one client until it leaves, or has its tunnel and that ends.
pub(in crate::relay) async fn serve(session: &Arc<Session>) -> End {
    let proxy = Arc::new(Proxy {
        session: session.clone(),
        origin: tokio::sync::Mutex::default(),
        tunnel: Mutex::default(),
    });
    if let Err(error) = exchange(&proxy).await {
        return proxy.broken_off(error).await;
    }
    let tunnel = proxy
        .tunnel
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match tunnel {
        Some((upgrade, far)) => run_tunnel(session, upgrade, &far).await,
        None => End::Finished,
    }
}

/// A body that could not be produced came from the origin; the rest is the client's.
fn culprit(error: &hyper::Error) -> Side {
    match error.is_user() {
        true => Side::Far,
        false => Side::Near,
    }
}

/// Requests and responses, until the client leaves or CONNECT is answered.
async fn exchange(proxy: &Arc<Proxy>) -> hyper::Result<()> {
    let session = proxy.session.clone();
    let counted = session.clone();
    let io = TokioIo::new(Shared {
        stream: Leg::plain(session.client.clone()),
        on_bytes: Box::new(move |read, written| {
            counted.count(Direction::Up, read);
            counted.count(Direction::Down, written);
        }),
    });
    let handler = proxy.clone();
    let service = service_fn(move |request| {
        let proxy = handler.clone();
        async move { Ok::<_, Infallible>(proxy.respond(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(session.config.limits.handshake_timeout)
        .half_close(true)
        .preserve_header_case(true)
        .serve_connection(io, service)
        .with_upgrades();
    tokio::pin!(connection);
    select! {
        outcome = connection.as_mut() => return outcome,
        () = session.relay.drain.reached(Phase::Drain) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

impl Proxy {
    async fn respond(&self, request: ClientRequest) -> Response<Body> {
        let outcome = match self.check(&request) {
            Ok(destination) if request.method() == Method::CONNECT => {
                self.connect(request, destination).await
            }
            Ok(destination) => self.pass_on(request, destination).await,
            Err(declined) => Err(declined),
        };
        outcome.unwrap_or_else(|Declined { failure, reason }| {
            self.session.door.counters.fail(failure);
            explanation(failure.http(), &reason)
        })
    }

    fn check(&self, request: &ClientRequest) -> Result<Destination, Declined> {
        let failure = Failure::BadRequest;
        let bad = |reason| Declined { failure, reason };
        let destination = destination(request.method(), request.uri()).map_err(bad)?;
        if has_passed(request.headers(), &self.session.relay.pseudonym) {
            return Err(Failure::Loop.into());
        }
        Ok(destination)
    }

    /// RFC 9110 §9.3.6. The answer waits for the destination's.
    async fn connect(
        &self,
        mut request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, Declined> {
        let far = self
            .session
            .open_answered(&Request::to(destination, Vec::new()))
            .await?;
        let upgrade = hyper::upgrade::on(&mut request);
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, far));
        Ok(Response::new(Either::Right(Full::default())))
    }

    /// Passes a request on and its response back; bodies stream. A kept connection that the origin
    /// has closed meanwhile hands the request back, for a new one.
    async fn pass_on(
        &self,
        request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, Declined> {
        let (mut head, body) = request.into_parts();
        onward_request(&mut head, &self.session.relay.pseudonym);
        let mut request = hyper::Request::from_parts(head, body);
        let mut kept = self.origin.lock().await;
        if let Some(origin) = kept.take_if(|origin| origin.serves(&destination)) {
            match self.send(&mut kept, origin, request).await {
                Ok(response) => return Ok(response),
                Err(Unsent::GivenBack(same)) => request = *same,
                Err(Unsent::Lost(declined)) => return Err(declined),
            }
        }
        *kept = None;
        let origin = self.open(destination).await?;
        match self.send(&mut kept, origin, request).await {
            Ok(response) => Ok(response),
            Err(Unsent::GivenBack(_)) => Err(no_response("closed at once")),
            Err(Unsent::Lost(declined)) => Err(declined),
        }
    }

    /// The exchange ended other than by a clean close between two requests.
    async fn broken_off(&self, error: hyper::Error) -> End {
        let origin = self.origin.lock().await;
        if error.is_timeout() {
            // Kept alive long enough, or a client that never finished its first request.
            return match &*origin {
                Some(_) => End::Finished,
                None => self.session.fail(Failure::HandshakeTimeout),
            };
        }
        // A message was cut short on one side: so it must end on the other (invariant 3).
        if let Some(origin) = &*origin {
            let _ = reset_on_close(&origin.stream);
        }
        End::Broken(culprit(&error), io::Error::other(error))
    }

    async fn send(
        &self,
        kept: &mut Option<Origin>,
        mut origin: Origin,
        request: ClientRequest,
    ) -> Result<Response<Body>, Unsent> {
        let sent = origin.sender.try_send_request(request).await;
        let response = sent.map_err(|mut error| match error.take_message() {
            Some(request) => Unsent::GivenBack(Box::new(request)),
            None => Unsent::Lost(no_response(&error.into_error().to_string())),
        })?;
        let (mut head, body) = response.into_parts();
        onward_response(&mut head, &self.session.relay.pseudonym);
        *kept = Some(origin);
        Ok(Response::from_parts(head, Either::Left(body)))
    }

    async fn open(&self, destination: Destination) -> Result<Origin, Declined> {
        let request = Request::to(destination.clone(), Vec::new());
        let far = self.session.open_answered(&request).await?;
        let stream = far.stream;
        let io = TokioIo::new(Shared {
            stream: stream.clone(),
            on_bytes: Box::new(|_, _| {}),
        });
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .handshake(io)
            .await
            .map_err(|error| no_response(&error.to_string()))?;
        // It ends with its sender, its response body, or its error, which the body reports.
        tokio::spawn(connection);
        Ok(Origin {
            destination,
            sender,
            stream,
        })
    }
}

impl Origin {
    fn serves(&self, destination: &Destination) -> bool {
        self.destination == *destination && self.sender.is_ready()
    }
}

/// Why a request has no response.
enum Unsent {
    /// Nothing of it left; it can be tried again.
    GivenBack(Box<ClientRequest>),
    /// It may have arrived.
    Lost(Declined),
}

fn no_response(error: &str) -> Declined {
    Declined {
        failure: Failure::Other,
        reason: format!("no response from the origin: {error}"),
    }
}

fn explanation(status: StatusCode, reason: &str) -> Response<Body> {
    let text = Bytes::from(format!("longhaul relay: {reason}\n"));
    let mut response = Response::new(Either::Right(Full::new(text)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// After CONNECT: what hyper has read too much goes first, the rest bypasses it.
async fn run_tunnel(session: &Session, upgrade: OnUpgrade, far: &Far) -> End {
    let early = match upgrade.await.map(Upgraded::downcast::<TokioIo<Shared>>) {
        Ok(Ok(parts)) => parts.read_buf,
        Ok(Err(_)) => unreachable!("the connection was served on this type"),
        Err(error) => return End::Broken(Side::Near, io::Error::other(error)),
    };
    match write_all(&far.stream, &early).await {
        Ok(()) => session.transfer(far, &[]).await,
        Err(error) => End::Broken(Side::Far, error),
    }
}
