// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the proxy for one HTTP client, and its own responses.

use crate::{
    client_protocols::http::{
        exchange::Exchange,
        request_log::RequestLog,
        response_timeout::{RequestBody, RequestProgress, ResponseBody},
    },
    faults::fault::Fault,
    route::upstream_leg::UpstreamLeg,
    session::{Session, http_memory::ConnectionCount},
};
use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::{
    Response, StatusCode, body::Incoming, client::conn::http1::SendRequest, header,
    upgrade::OnUpgrade,
};
use longhaul_admission::penalties;
use longhaul_protocol::{destination::Destination, failure::Failure};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use tokio::task::JoinHandle;

pub(crate) type ClientRequest = hyper::Request<Incoming>;
/// Request to the origin; a repeated one has no body.
pub(crate) type OriginRequest = hyper::Request<OriginRequestBody>;
type OriginRequestBody = Either<RequestBody, Empty<Bytes>>;
/// Response body: the origin's, or the proxy's own.
pub(super) type Body = Either<ResponseBody, OwnBody>;
type OwnBody = crate::client_protocols::ftp::Body;

/// Most fields of a message head; more is an error 431.
pub(crate) const FIELDS_MAX: usize = 512;

/// Proxy for one client.
pub(crate) struct Proxy {
    pub(super) session: Arc<Session>,
    pub(super) exchange: Arc<Exchange>,
    /// Persistent connection to the origin of the last request.
    pub(super) origin: tokio::sync::Mutex<Option<Origin>>,
    /// Connection of the last request, while it is open.
    pub(super) last_upstream: Mutex<Weak<UpstreamLeg>>,
    /// Tunnel to start after the response to CONNECT or Upgrade.
    pub(super) tunnel: Mutex<Option<Tunnel>>,
    /// Record of a request that ends with the connection: a tunnel or a refusal.
    pub(super) last_log: Mutex<Option<Box<RequestLog>>>,
}

/// Two legs that leave HTTP once the response is written.
pub(crate) struct Tunnel {
    pub(super) client: OnUpgrade,
    /// `None` after CONNECT: that leg never used HTTP.
    pub(super) origin: Option<OnUpgrade>,
    pub(super) upstream: Arc<UpstreamLeg>,
}

/// Connection to an origin server that can take the next request.
pub(crate) struct Origin {
    pub(super) destination: Destination,
    pub(super) sender: SendRequest<OriginRequestBody>,
    /// The connection was open before this request, and may have died unnoticed.
    pub(super) is_reused: bool,
    pub(super) upstream: Arc<UpstreamLeg>,
    /// Fault from the peer on the path, if it refused.
    pub(super) fault: Arc<OnceLock<Fault>>,
    /// Progress of the current request.
    pub(super) progress: Arc<Mutex<Arc<RequestProgress>>>,
    /// Task in which hyper drives the connection.
    pub(super) connection: JoinHandle<hyper::Result<()>>,
    pub(super) _counted: ConnectionCount,
}

/// Error response of the proxy itself.
pub(crate) struct ErrorResponse {
    pub(super) fault: Fault,
    pub(super) status: StatusCode,
    /// Body of the response, if not the fault's message.
    pub(super) reason: Option<String>,
    /// Error type for Proxy-Status (RFC 9209 §2.3), if not the fault's; `""` omits the field.
    pub(super) error: Option<&'static str>,
}

impl ErrorResponse {
    pub(super) fn new(failure: Failure, reason: String) -> Self {
        Self {
            reason: Some(reason),
            ..Fault::from(failure).into()
        }
    }

    /// Returns the cause for a record.
    pub(super) fn cause(&self) -> String {
        let reason = self.reason.clone();
        reason.unwrap_or_else(|| self.fault.to_string())
    }

    /// Response for a client that is not authenticated.
    pub(super) fn unauthenticated(status: StatusCode, reason: &str) -> Self {
        Self {
            status,
            error: Some(""),
            ..Self::new(Failure::NotAllowed, reason.to_owned())
        }
    }
}

impl From<Failure> for ErrorResponse {
    fn from(failure: Failure) -> Self {
        Fault::from(failure).into()
    }
}

impl From<Fault> for ErrorResponse {
    fn from(fault: Fault) -> Self {
        Self {
            status: fault.failure.http(),
            fault,
            reason: None,
            error: None,
        }
    }
}

impl Proxy {
    pub(super) fn set_tunnel(&self, tunnel: Tunnel) {
        *self.tunnel.lock() = Some(tunnel);
    }
}

pub(crate) fn own_body(bytes: impl Into<Bytes>) -> Body {
    Either::Right(Either::Left(Full::new(bytes.into())))
}

pub(crate) fn no_response(error: &str) -> ErrorResponse {
    ErrorResponse {
        error: Some("http_response_incomplete"),
        ..ErrorResponse::new(
            Failure::Other,
            format!("no response from the origin: {error}"),
        )
    }
}

/// Error response where the head of the origin's response breaks the rules.
pub(crate) fn unreadable_response(error: &hyper::Error) -> ErrorResponse {
    let rule = error.to_string();
    let versions = if rule.contains("version") {
        "; it must be HTTP/1.1, HTTP/1.0 or ICY"
    } else {
        ""
    };
    ErrorResponse {
        reason: Some(format!(
            "the origin's response can't be read: {rule}{versions}"
        )),
        ..no_response(&rule)
    }
}

/// Error response as bytes, for clients that hyper does not answer.
pub(super) fn text_response_bytes(status: StatusCode, reason: &str) -> Vec<u8> {
    let body = format!("longhaul relay: {reason}\n");
    let fields = "Content-Type: text/plain; charset=utf-8\r\nConnection: close";
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
}

pub(super) fn text_response(status: StatusCode, reason: &str) -> Response<Body> {
    let text = Bytes::from(format!("longhaul relay: {reason}\n"));
    let mut response = Response::new(own_body(text));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if status == StatusCode::TOO_MANY_REQUESTS {
        // Longest delay between two password checks.
        let seconds = penalties::DELAY_MAX.as_secs().into();
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    if status == StatusCode::UNAUTHORIZED {
        let basic = header::HeaderValue::from_static("Basic realm=\"ftp\"");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, basic);
    }
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        let basic = header::HeaderValue::from_static("Basic realm=\"longhaul\"");
        response
            .headers_mut()
            .insert(header::PROXY_AUTHENTICATE, basic);
    }
    response
}
