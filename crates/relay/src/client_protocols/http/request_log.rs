// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record of each request in the access log. The record of an ordinary request is written when its response body ends,
//! that of a tunnel or of a refusal when the connection does.

use crate::{
    client_protocols::http::exchange::Exchange,
    relay::Phase,
    session::{Session, close::describe, open_records::TunnelRequest},
    transfer::End,
};
use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode, Uri,
    body::{Body, Frame, SizeHint},
    header,
};
use jiff::Timestamp;
use longhaul_admin::relay_record::{EndReason, Record, RequestRecord};
use longhaul_protocol::proxy_headers::credentials;
use std::{
    fmt::Display,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Instant,
};

/// Most bytes of a target in a record.
const TARGET_LEN_MAX: usize = 2048;

/// Record of a request, written when dropped.
pub(super) struct RequestLog {
    session: Arc<Session>,
    exchange: Arc<Exchange>,
    record: RequestRecord,
    started: Instant,
    /// Bytes of the connection before this request.
    bytes_before: (u64, u64),
    is_tunnel: bool,
}

impl RequestLog {
    /// Starts the record of a request; `None` without an access log.
    pub(super) fn begin(
        session: &Arc<Session>,
        exchange: &Arc<Exchange>,
        request: &Request<impl Body>,
    ) -> Option<Box<Self>> {
        let mut log = Self::begin_unread(session, exchange)?;
        log.record.method = Some(request.method().to_string());
        log.record.target = Some(shown_target(request.uri()));
        log.record.protocol = Some(format!("{:?}", request.version()));
        let has_users = session.setup.listener_config.users.is_some();
        let given = credentials(request.headers(), header::PROXY_AUTHORIZATION);
        let user = given.filter(|_| has_users).map(|(user, _)| user);
        log.record.user = user.map(|user| String::from_utf8_lossy(&user).into_owned());
        Some(log)
    }

    /// Starts the record of a request that could not be read; `None` without an access log.
    pub(super) fn begin_unread(
        session: &Arc<Session>,
        exchange: &Arc<Exchange>,
    ) -> Option<Box<Self>> {
        session.access_log()?;
        // Boxed: most connections have none, and each would keep the space.
        Some(Box::new(Self {
            record: empty_record(session),
            session: session.clone(),
            exchange: exchange.clone(),
            started: Instant::now(),
            // The head of a connection's first request was read before.
            bytes_before: Some(session.traffic.read())
                .filter(|(_, down)| *down > 0)
                .unwrap_or_default(),
            is_tunnel: false,
        }))
    }

    /// Stores that the client has not proved who it is.
    pub(super) fn forget_user(&mut self) {
        self.record.user = None;
    }

    /// Stores that the relay itself answers with an error. If the client has cut its own request short, it has aborted it.
    pub(super) fn fail(&mut self, cause: &str) {
        self.record.ended = EndReason::Failed;
        if self.exchange.has_failed_request() {
            self.record.ended = EndReason::ClientAborted;
            self.set_destination();
        }
        self.record.cause = Some(cause.to_owned());
    }

    /// Stores the status, which the client gets now.
    pub(super) fn respond(&mut self, status: StatusCode) {
        self.record.status = status.as_u16();
        self.record.response_s = self.started.elapsed().as_secs_f64();
    }

    /// Stores that the destination answers, and the leg to it.
    pub(super) fn set_destination(&mut self) {
        let upstream = self.session.upstream();
        self.record.next_hop = upstream.next_hop;
        self.record.peer = upstream.peer.map(|peer| peer.config.name.clone());
    }

    /// Stores that the connection becomes a tunnel, all bytes of which count. The record is complete but for its end.
    pub(super) fn begin_tunnel(&mut self) {
        self.is_tunnel = true;
        self.session.set_tunnel_request(|| TunnelRequest {
            record: self.record.clone(),
            started: self.started,
            bytes_before: self.bytes_before,
        });
    }

    /// Ends the record of a tunnel.
    pub(super) fn end_tunnel(mut self, end: &End) {
        (self.record.ended, self.record.cause) = describe(end);
    }

    fn count_bytes(&mut self) {
        let (up, down) = self.session.traffic.read();
        if self.is_tunnel {
            self.record.bytes_up = up - self.bytes_before.0;
            self.record.bytes_down = down - self.bytes_before.1;
        } else {
            self.record.bytes_up = self.exchange.body_bytes();
        }
    }

    /// Stores what a frame of the response's body, or its end, says.
    fn on_frame<E: Display>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>, is_last: bool) {
        match frame {
            Some(Err(error)) if !self.exchange.has_failed_request() => {
                self.record.ended = EndReason::DestinationAborted;
                self.record.cause = Some(error.to_string());
            }
            Some(Err(_)) => {}
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                self.record.bytes_down += len as u64;
            }
            None => {}
        }
        if is_last {
            self.complete();
        }
    }

    /// Stores that the response is complete.
    fn complete(&mut self) {
        if self.record.ended == EndReason::ClientAborted && self.record.cause.is_none() {
            self.record.ended = EndReason::Finished;
        }
    }

    /// Stores the reason if the relay has cut the connection.
    fn note_cut(&mut self) {
        let cause = self.session.cut_cause();
        let is_cut = cause.is_some() || self.session.relay.lifecycle.phase() >= Phase::Cut;
        if is_cut && self.record.ended == EndReason::ClientAborted {
            self.record.ended = EndReason::ResetByRelay;
            self.record.cause = cause;
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.note_cut();
        self.count_bytes();
        self.record.time = Timestamp::now();
        self.record.duration_s = self.started.elapsed().as_secs_f64();
        self.session.records.requests_logged.store(true, Relaxed);
        self.session.end_open_records();
        let record = Record::Request(Box::new(self.record.clone()));
        if let Some(access_log) = self.session.access_log() {
            access_log.put(record);
        }
    }
}

/// Record of a request before anything is known but its client. Unless its response becomes complete, the client has
/// aborted it.
fn empty_record(session: &Session) -> RequestRecord {
    RequestRecord {
        time: Timestamp::UNIX_EPOCH,
        listener: session.listener.address,
        client: session.client.address,
        user: None,
        method: None,
        target: None,
        protocol: None,
        status: 0,
        next_hop: None,
        peer: None,
        bytes_up: 0,
        bytes_down: 0,
        response_s: 0.0,
        duration_s: 0.0,
        ended: EndReason::ClientAborted,
        cause: None,
    }
}

/// Target without a user and a password.
fn shown_target(uri: &Uri) -> String {
    let text = uri.to_string();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    let mut target = text.replacen(authority, host, usize::from(host != authority));
    let mut ends = (0..=TARGET_LEN_MAX.min(target.len())).rev();
    let end = ends.find(|end| target.is_char_boundary(*end));
    target.truncate(end.unwrap_or(0));
    target
}

/// Response body whose end is recorded.
pub(crate) struct LoggedBody<B> {
    body: B,
    log: Option<Box<RequestLog>>,
}

impl<B: Body> LoggedBody<B> {
    pub(super) fn new(body: B, mut log: Option<Box<RequestLog>>) -> Self {
        if let Some(log) = &mut log {
            let is_head = log.record.method.as_deref() == Some(Method::HEAD.as_str());
            if is_head || body.is_end_stream() {
                log.complete();
            }
        }
        Self { body, log }
    }
}

impl<B> Body for LoggedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_last = frame.is_none() || self.body.is_end_stream();
        if let Some(log) = &mut self.log {
            log.on_frame(frame.as_ref(), is_last);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_shows_no_password_and_is_bounded() {
        let shown = |text: &str| shown_target(&text.parse().unwrap());
        assert_eq!(shown("http://me:secret@h.test/a?b"), "http://h.test/a?b");
        assert_eq!(shown("ftp://me@h.test:2121/"), "ftp://h.test:2121/");
        assert_eq!(shown("h.test:443"), "h.test:443");
        let long = format!("http://h.test/{}", "\u{e4}".repeat(3000));
        assert!(shown(&long).len() <= TARGET_LEN_MAX);
    }
}
