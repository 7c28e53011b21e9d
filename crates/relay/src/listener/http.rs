// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1 proxy clients (RFC 9110 §3.7): CONNECT becomes a tunnel, http:// requests are passed on
//! one by one while the connection is kept alive.

use crate::{
    admission::penalties,
    faults::fault::Fault,
    ftp,
    leg::{Leg, shared::Shared},
    listener::{answered::Answered, first_head},
    paced::Paced,
    records::counters::Direction,
    relay::drain::Phase,
    route::{far::Far, request::Request},
    session::{
        Session,
        client::Verdict,
        http_memory::{Counted, HEAD_LEN_MAX},
    },
    silence::{Download, Silence, Upload},
    transfer::{End, Side},
};
use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::{
    Method, Response, StatusCode,
    body::{Body as _, Incoming},
    client::conn::http1::SendRequest,
    header,
    server::conn::http1,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_protocol::destination::Destination;
use longhaul_protocol::{
    failure::Failure,
    proxy_headers::{
        credentials, destination, has_passed, is_ftp, max_forwards, onward_request,
        onward_response, traced, upgrade,
    },
};
use longhaul_units::Time;
use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak, atomic::AtomicBool},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
};

type ClientRequest = hyper::Request<Incoming>;
/// The client's request as it goes on; one that is made again has no body.
type OnwardRequest = hyper::Request<OnwardBody>;
type OnwardBody = Either<Upload, Empty<Bytes>>;
/// An origin's, or our own.
type Body = Either<Download, ftp::Body>;

/// RFC 9209 §2.
const PROXY_STATUS: header::HeaderName = header::HeaderName::from_static("proxy-status");

/// Fields of a message head; more is 431.
const FIELDS_MAX: usize = 128;

/// One client's proxy.
struct Proxy {
    session: Arc<Session>,
    /// The origin of the last request, for the next one.
    origin: tokio::sync::Mutex<Option<Origin>>,
    /// The leg that was asked over last, while it stands.
    asked: Mutex<Weak<Far>>,
    /// What CONNECT or Upgrade leaves behind for the time after its response.
    tunnel: Mutex<Option<Tunnel>>,
}

/// Two legs that HTTP has left, or will have left when its response is out.
struct Tunnel {
    client: OnUpgrade,
    /// None after CONNECT: there never was HTTP.
    origin: Option<OnUpgrade>,
    far: Arc<Far>,
}

/// A connection to an origin server that can take the next request.
struct Origin {
    destination: Destination,
    sender: SendRequest<OnwardBody>,
    /// It stood before its next request, and may have died unnoticed.
    stood: bool,
    far: Arc<Far>,
    /// What the peer on the way said, if it refused.
    refused: Arc<OnceLock<Fault>>,
    _counted: Counted,
}

/// A request that gets an answer from the proxy itself.
struct Declined {
    fault: Fault,
    status: StatusCode,
    /// The body, if it is not the fault in words.
    reason: Option<String>,
    /// For Proxy-Status (RFC 9209 §2.3), if it is not the fault's; `""` is none at all.
    error: Option<&'static str>,
}

impl Declined {
    fn new(failure: Failure, reason: String) -> Self {
        Self {
            reason: Some(reason),
            ..Fault::from(failure).into()
        }
    }

    /// For who is no user, or not known to be one.
    fn stranger(status: StatusCode, reason: &str) -> Self {
        Self {
            status,
            error: Some(""),
            ..Self::new(Failure::NotAllowed, reason.to_owned())
        }
    }
}

impl From<Failure> for Declined {
    fn from(failure: Failure) -> Self {
        Fault::from(failure).into()
    }
}

impl From<Fault> for Declined {
    fn from(fault: Fault) -> Self {
        Self {
            status: fault.failure.http(),
            fault,
            reason: None,
            error: None,
        }
    }
}

/// Serves one client until it leaves, or has its tunnel and that ends.
pub(crate) async fn serve(session: &Arc<Session>) -> End {
    let proxy = Arc::new(Proxy {
        session: session.clone(),
        origin: tokio::sync::Mutex::default(),
        asked: Mutex::default(),
        tunnel: Mutex::default(),
    });
    let head = match first_head::read(session).await {
        Ok(head) => head,
        Err(end) => return end,
    };
    // In a box: a client that has not said anything yet costs no more than its head.
    if let Some(end) = Box::pin(exchange_until_broken(&proxy, head)).await {
        return end;
    }
    let tunnel = proxy
        .tunnel
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match tunnel {
        Some(tunnel) => Box::pin(run_tunnel(session, tunnel)).await,
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

/// How it ended, unless it did well. While an origin says nothing, nobody reads from the client or writes to it: that it
/// has reset, or is gone by its keepalive, is looked for here.
async fn exchange_until_broken(proxy: &Arc<Proxy>, head: Bytes) -> Option<End> {
    // It stays until its leg is reset: HTTP ends what is dropped cleanly.
    let exchange = exchange(proxy, head);
    tokio::pin!(exchange);
    select! {
        biased;
        outcome = exchange.as_mut() => match outcome {
            Ok(()) => None,
            Err(error) => Some(proxy.broken_off(error).await),
        },
        error = proxy.session.client.broken() => {
            proxy.reset_origin();
            Some(End::Broken(Side::Near, error))
        }
    }
}

/// Requests and responses, until the client leaves or CONNECT is answered.
async fn exchange(proxy: &Arc<Proxy>, head: Bytes) -> hyper::Result<()> {
    let session = proxy.session.clone();
    let _counted = session.http.connection();
    let counted = session.clone();
    let stream = Shared {
        stream: Leg::plain(session.client.clone()),
        on_bytes: Box::new(move |read, written| {
            counted.count(Direction::Up, read);
            counted.count(Direction::Down, written);
        }),
    };
    let (limits, memory) = (session.limits().clone(), session.http.clone());
    let io = TokioIo::new(Paced::new(stream, limits, memory, head));
    let handler = proxy.clone();
    let service = service_fn(move |request| {
        let proxy = handler.clone();
        async move { Ok::<_, Infallible>(proxy.respond(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(session.config.limits.handshake_timeout)
        .max_headers(FIELDS_MAX)
        .max_header_size(HEAD_LEN_MAX)
        .max_buf_size(HEAD_LEN_MAX)
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
        self.session.asks_again();
        self.session.http.end_message();
        let checked = self.check(&request).await;
        let wanted = checked
            .as_ref()
            .map_or_else(|_| String::new(), ToString::to_string);
        let outcome = match checked {
            Ok(destination) => self.serve(request, destination).await,
            Err(declined) => Err(declined),
        };
        outcome.unwrap_or_else(|declined| {
            self.session.door.counters.fail(declined.fault.failure);
            self.explain(declined, &wanted)
        })
    }

    /// In words and as a field (RFC 9209). Relays have the names of this one's file.
    fn explain(&self, declined: Declined, wanted: &str) -> Response<Body> {
        let Declined {
            fault,
            status,
            reason,
            error,
        } = declined;
        let config = &self.session.config;
        let fault = fault.renamed(|address| config.name_at(address));
        let mut response = explanation(status, &reason.unwrap_or_else(|| fault.words(wanted)));
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
    ) -> Result<Response<Body>, Declined> {
        if request.method() == Method::CONNECT {
            return self.connect(request, destination).await;
        }
        if is_ftp(request.uri()) {
            return self.ftp(&request, &destination).await;
        }
        match max_forwards(request.method(), request.headers()) {
            Some(0) => Ok(answer_here(&request)),
            _ => self.pass_on(request, destination).await,
        }
    }

    async fn ftp(
        &self,
        request: &ClientRequest,
        server: &Destination,
    ) -> Result<Response<Body>, Declined> {
        let bad = |reason| Declined::new(Failure::BadRequest, reason);
        let only_head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            _ => return Err(bad("ftp:// takes GET and HEAD".to_owned())),
        };
        let given = credentials(request.headers(), header::AUTHORIZATION);
        let url = ftp::Url::new(request.uri(), given).map_err(bad)?;
        match ftp::get(&self.session, server, &url, only_head).await {
            Ok(response) => {
                self.session.hears_answer();
                Ok(response.map(Either::Right))
            }
            Err(ftp::Refused {
                fault: Some(fault), ..
            }) => Err(fault.into()),
            Err(ftp::Refused { status, reason, .. }) => {
                let (failure, error) = match status {
                    StatusCode::GATEWAY_TIMEOUT => (Failure::TimedOut, "http_response_timeout"),
                    _ => (Failure::Other, ""),
                };
                Err(Declined {
                    status,
                    error: Some(error),
                    ..Declined::new(failure, reason)
                })
            }
        }
    }

    /// RFC 9110 §11.7.1.
    async fn authenticate(&self, request: &ClientRequest) -> Verdict {
        let Some(users) = &self.session.listener.users else {
            return Verdict::Right;
        };
        match credentials(request.headers(), header::PROXY_AUTHORIZATION) {
            Some((user, password)) => self.session.authenticate(users, &user, &password).await,
            None => Verdict::Wrong,
        }
    }

    async fn check(&self, request: &ClientRequest) -> Result<Destination, Declined> {
        match self.authenticate(request).await {
            Verdict::Right => {}
            Verdict::Wrong => {
                return Err(Declined::stranger(
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                    "this proxy wants a user and a password",
                ));
            }
            Verdict::Unseen => {
                return Err(Declined::stranger(
                    StatusCode::TOO_MANY_REQUESTS,
                    "wrong passwords came from this address: try again later, once those that wait were looked at",
                ));
            }
        }
        let bad = |reason| Declined::new(Failure::BadRequest, reason);
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
        let wanted = Request {
            may_stripe: true,
            ..Request::to(destination, Vec::new())
        };
        let far = self.session.open_answered(&wanted).await?;
        self.leave_http(Tunnel {
            client: hyper::upgrade::on(&mut request),
            origin: None,
            far: Arc::new(far),
        });
        Ok(Response::new(own(Bytes::new())))
    }

    fn leave_http(&self, tunnel: Tunnel) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
    }

    /// Passes a request on and its response back; bodies stream.
    async fn pass_on(
        &self,
        mut request: ClientRequest,
        destination: Destination,
    ) -> Result<Response<Body>, Declined> {
        let offered =
            upgrade(request.version(), request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        onward_request(&mut head, &self.session.relay.pseudonym);
        let unasked = Arc::default();
        let body = Either::Left(Upload::new(body, &unasked, &self.session.http));
        let request = hyper::Request::from_parts(head, body);
        let mut kept = self.origin.lock().await;
        let asked = (request, &unasked);
        let response = self.ask(&mut kept, asked, &destination).await?;
        self.answer(&mut kept, response, offered)
    }

    /// Asks over the connection that was kept, else over one that stands ready, else over a new one.
    /// One that turns out to be dead hands the request back for the next, or has taken it along:
    /// then it is made again if that does no harm (RFC 9110 §9.2.2).
    async fn ask(
        &self,
        kept: &mut Option<Origin>,
        (mut request, unasked): (OnwardRequest, &Arc<AtomicBool>),
        destination: &Destination,
    ) -> Result<Response<Download>, Declined> {
        let ways = std::iter::repeat_n(Source::New, WAYS_MAX);
        for source in [Source::Kept, Source::Ready].into_iter().chain(ways) {
            let Some(origin) = self.origin(source, kept, destination).await? else {
                continue;
            };
            let may_die = origin.stood || origin.far.owes_answer();
            let copy = may_die.then(|| harmless_copy(&request)).flatten();
            request = match self.send(kept, origin, (request, unasked)).await {
                Ok(response) => return Ok(response),
                Err(Unsent::GivenBack(same)) => *same,
                Err(Unsent::Lost(declined)) => return Err(declined),
                Err(Unsent::Died(declined)) => copy.ok_or(declined)?,
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

    /// The response for the client. A change of protocols (RFC 9110 §7.8) takes both legs out of
    /// HTTP once it is out.
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

    /// The exchange ended other than by a clean close between two requests.
    async fn broken_off(&self, error: hyper::Error) -> End {
        let origin = self.origin.lock().await;
        if error.is_timeout() {
            // Kept alive long enough, or a client that never finished its first request.
            return match &*origin {
                Some(_) => End::Finished,
                None => {
                    self.session.client.fin_on_close();
                    self.session.fail(Failure::HandshakeTimeout)
                }
            };
        }
        // A message was cut short on one side: so it must end on the other (invariant 3).
        if let Some(origin) = &*origin {
            origin.far.stream.carrier().reset_on_close();
        }
        End::Broken(culprit(&error), io::Error::other(error))
    }

    /// The client is gone in the middle of the exchange.
    fn reset_origin(&self) {
        let kept = self.origin.try_lock().ok();
        if let Some(Some(idle)) = kept.as_deref()
            && idle.sender.is_ready()
        {
            return idle.far.stream.carrier().reset_on_close();
        }
        // It owes an answer, or the rest of one: HTTP would end that cleanly.
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(far) = asked.upgrade() {
            far.stream.carrier().reset();
        }
    }

    async fn send(
        &self,
        kept: &mut Option<Origin>,
        mut origin: Origin,
        (request, unasked): (OnwardRequest, &Arc<AtomicBool>),
    ) -> Result<Response<Download>, Unsent> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&origin.far);
        let limit = self.session.config.limits.response_timeout;
        let mut silence = Silence::new(&origin.far, unasked, limit);
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
                *kept = Some(origin);
                return Ok(response.map(|body| Download::new(body, silence)));
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

    /// The request went, and no response came.
    async fn lost(&self, origin: &Origin, error: &hyper::Error) -> Unsent {
        let wanted = Request::to(origin.destination.clone(), Vec::new());
        match origin.refused.get() {
            Some(fault) if origin.far.was_stale() => Unsent::Died(fault.clone().into()),
            Some(fault) => match self.session.has_other_way(&origin.far, &wanted).await {
                true => Unsent::Died(fault.clone().into()),
                false => Unsent::Lost(fault.clone().into()),
            },
            None if error.is_parse() => Unsent::Lost(no_response(&error.to_string())),
            None => Unsent::Died(no_response(&error.to_string())),
        }
    }

    /// HTTP over a leg. Requests leave behind the preamble for a peer, whose answer is read before
    /// the first response: no round trip is spent on it (RFC 8803 §3).
    async fn speak(&self, destination: &Destination, far: Far) -> Result<Origin, Declined> {
        let far = Arc::new(far);
        let refused = Arc::new(OnceLock::new());
        let io = TokioIo::new(Answered::new(far.clone(), refused.clone()));
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(FIELDS_MAX)
            .max_buf_size(HEAD_LEN_MAX)
            .handshake(io)
            .await
            .map_err(|error| no_response(&error.to_string()))?;
        // It ends with its sender, its response body, or its error, which the body reports.
        tokio::spawn(connection.with_upgrades());
        Ok(Origin {
            destination: destination.clone(),
            sender,
            stood: far.stood_ready(),
            far,
            refused,
            _counted: self.session.http.connection(),
        })
    }
}

/// New connections that one request may take: one, and one more for each peer that turns out to be
/// down.
const WAYS_MAX: usize = 4;

/// Where a connection to an origin comes from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Kept,
    /// Among those to peers that stand ready, or a new one.
    Ready,
    New,
}

/// The request once more, if it has no body that is gone and may come twice.
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

/// Why a request has no response.
enum Unsent {
    /// Nothing of it left; it can be tried again.
    GivenBack(Box<OnwardRequest>),
    /// It was answered, though not by a response.
    Lost(Declined),
    /// The connection ended under it; it may have arrived.
    Died(Declined),
}

fn own(bytes: impl Into<Bytes>) -> Body {
    Either::Right(Either::Left(Full::new(bytes.into())))
}

fn no_response(error: &str) -> Declined {
    Declined {
        error: Some("http_response_incomplete"),
        ..Declined::new(
            Failure::Other,
            format!("no response from the origin: {error}"),
        )
    }
}

/// TRACE and OPTIONS that may go no further (RFC 9110 §7.6.2).
fn answer_here(request: &ClientRequest) -> Response<Body> {
    let trace = request.method() == Method::TRACE;
    let body = match trace {
        true => traced(request.method(), request.uri(), request.headers()),
        false => Vec::new(),
    };
    let mut response = Response::new(own(body));
    if trace {
        let echo = header::HeaderValue::from_static("message/http");
        response.headers_mut().insert(header::CONTENT_TYPE, echo);
    }
    response
}

fn explanation(status: StatusCode, reason: &str) -> Response<Body> {
    let text = Bytes::from(format!("longhaul relay: {reason}\n"));
    let mut response = Response::new(own(text));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if status == StatusCode::TOO_MANY_REQUESTS {
        // The longest time between two passwords that are looked at.
        let seconds = penalties::DELAY_MAX.as_secs().into();
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        let basic = header::HeaderValue::from_static("Basic realm=\"longhaul\"");
        response
            .headers_mut()
            .insert(header::PROXY_AUTHENTICATE, basic);
    }
    response
}

/// After CONNECT or an upgrade: what hyper has read too much goes first, the rest bypasses it.
async fn run_tunnel(session: &Session, tunnel: Tunnel) -> End {
    let Tunnel {
        client,
        origin,
        far,
    } = tunnel;
    let early = match left_over::<Paced>(client).await {
        Ok((early, paced)) => [early, paced.into_ahead()].concat(),
        Err(error) => return End::Broken(Side::Near, error),
    };
    session.http.end_message();
    let late = match origin {
        Some(origin) => left_over::<Answered>(origin).await.map(|(late, _)| late),
        None => Ok(Bytes::new()),
    };
    let late = match late {
        Ok(late) => late,
        Err(error) => return End::Broken(Side::Far, error),
    };
    match far.send_first(&early).await {
        Ok(()) => session.transfer(&far, &late).await,
        Err(error) => End::Broken(Side::Far, error),
    }
}

/// What was read behind the last message of HTTP, on a connection over `T`, and that.
async fn left_over<T>(upgrade: OnUpgrade) -> io::Result<(Bytes, T)>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    match upgraded.downcast::<TokioIo<T>>() {
        Ok(parts) => Ok((parts.read_buf, parts.io.into_inner())),
        Err(_) => unreachable!("the connection was served on this type"),
    }
}
