// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the message exchange with an HTTP client, for features that hyper's server lacks:
//! interim responses from the origin, trailers that were not announced, refusals with a reason.

use crate::session::http_memory::HEAD_LEN_MAX;
use hyper::{Request, StatusCode, Version, body::Body};
use longhaul_protocol::proxy_headers::waits_for_100;
use parking_lot::Mutex;
use std::{
    mem::take,
    task::{Context, Poll, Waker, ready},
};

/// Interim response that hyper writes by itself when the body of a request with `Expect:
/// 100-continue` is first read.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Exchange state of one client, shared by the handler and the stream below hyper.
#[derive(Debug, Default)]
pub(crate) struct Exchange(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    phase: ExchangePhase,
    /// The client waits for 100 (Continue), and has received neither that nor a response.
    awaits_continue: bool,
    /// hyper has written bytes that are not flushed.
    unflushed: bool,
    /// Framing of the body behind the last head, until the reader takes it.
    body: Option<Framing>,
    /// Bytes of the last request's body that were read.
    body_bytes: u64,
    /// The last request may not be read to its end.
    request_unread: bool,
    /// The last request is CONNECT with a length, whose body some clients send. Bytes behind it are either that body or
    /// the next request.
    has_ambiguous_end: bool,
    /// The body of the last request was malformed or cut short.
    request_failed: bool,
    /// The client supports chunked encoding.
    accepts_chunks: bool,
    /// Bytes to write before anything else.
    pending_output: Vec<u8>,
    /// Trailer section that replaces the end of the response.
    trailers: Option<Vec<u8>>,
    refusal: Option<(StatusCode, Option<String>)>,
    /// Waker of the task that serves the client, and whether it waits for a flush.
    waker: Option<(Waker, bool)>,
}

/// Phase of the exchange.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangePhase {
    /// Waiting for a request. If hyper writes now, it refuses a malformed one.
    #[default]
    AwaitRequest,
    /// Waiting for the origin's response.
    AwaitResponse,
    /// Writing the response.
    SendResponse,
}

/// Framing of a request's body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    Length(u64),
    /// Chunked encoding.
    Chunked,
}

impl Exchange {
    /// Starts an exchange: hyper has parsed a head.
    pub(super) fn begin(&self, request: &Request<impl Body>) {
        let (version, hint) = (request.version(), request.body().size_hint());
        let mut state = self.0.lock();
        // HTTP/1.0 clients do not know interim responses.
        state.accepts_chunks = version == Version::HTTP_11;
        state.phase = if state.accepts_chunks && !state.unflushed {
            ExchangePhase::AwaitResponse
        } else {
            ExchangePhase::SendResponse
        };
        let empty = request.body().is_end_stream();
        state.awaits_continue = !empty && waits_for_100(version, request.headers());
        state.request_unread = !empty;
        state.request_failed = false;
        state.body_bytes = 0;
        state.body = Some(hint.exact().map_or(Framing::Chunked, Framing::Length));
        state.trailers = None;
    }

    /// Queues an interim response for the client.
    pub(crate) fn queue_interim(&self, head: &[u8]) {
        let mut state = self.0.lock();
        state.awaits_continue &= !head.starts_with(b"HTTP/1.1 100 ");
        if state.phase == ExchangePhase::AwaitResponse && state.pending_output.len() < HEAD_LEN_MAX
        {
            state.pending_output.extend(head);
            state.wake();
        }
    }

    /// Whether the client may still hold back its body.
    pub(super) fn awaits_continue(&self) -> bool {
        self.0.lock().awaits_continue
    }

    /// Notes that body data has arrived, with or without 100 (Continue).
    pub(super) fn on_body_data(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.awaits_continue = false;
        state.body_bytes += bytes as u64;
    }

    /// Returns the number of bytes of the last request's body so far.
    pub(super) fn body_bytes(&self) -> u64 {
        self.0.lock().body_bytes
    }

    /// Notes that the last request was read to its end.
    pub(super) fn on_request_end(&self) {
        self.0.lock().request_unread = false;
    }

    pub(super) fn has_unread_request(&self) -> bool {
        self.0.lock().request_unread
    }

    /// Sets the end of the response's body, trailers included.
    pub(super) fn set_trailers(&self, end: Vec<u8>) {
        let mut state = self.0.lock();
        state.trailers = state.accepts_chunks.then_some(end);
    }

    pub(super) fn has_trailers(&self) -> bool {
        self.0.lock().trailers.is_some()
    }

    pub(super) fn take_trailers(&self) -> Vec<u8> {
        self.0.lock().trailers.take().unwrap_or_default()
    }

    /// Sets the refusal that the client receives instead of hyper's; the connection closes then.
    pub(super) fn refuse(&self, status: StatusCode, reason: Option<String>) {
        self.0.lock().refusal.get_or_insert((status, reason));
    }

    /// Notes whether bytes behind the last head may be its body or the next request.
    pub(super) fn set_ambiguous_end(&self, is_ambiguous: bool) {
        self.0.lock().has_ambiguous_end = is_ambiguous;
    }

    /// Whether the connection must close, unless it becomes a tunnel.
    pub(super) fn has_ambiguous_end(&self) -> bool {
        self.0.lock().has_ambiguous_end
    }

    /// Notes that the client's request failed in its body. Refuses it, unless a response has begun.
    pub(super) fn refuse_body(&self, reason: &str) {
        self.0.lock().request_failed = true;
        if self.phase() == ExchangePhase::AwaitResponse {
            self.refuse(StatusCode::BAD_REQUEST, Some(reason.to_owned()));
        }
    }

    /// Whether the body of the last request failed: what follows is not the origin's fault.
    pub(super) fn has_failed_request(&self) -> bool {
        self.0.lock().request_failed
    }

    /// Refuses a head that was not complete in time (RFC 9110 §15.5.9).
    pub(super) fn refuse_slow_head(&self) {
        let reason = "the request was not complete in time (limits.handshake_timeout)";
        self.refuse(StatusCode::REQUEST_TIMEOUT, Some(reason.to_owned()));
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.lock().refusal.is_some()
    }

    pub(super) fn take_refusal(&self) -> Option<(StatusCode, Option<String>)> {
        self.0.lock().refusal.take()
    }

    pub(super) fn phase(&self) -> ExchangePhase {
        self.0.lock().phase
    }

    /// Notes that bytes of a response are being written.
    pub(super) fn on_response_bytes(&self) {
        let mut state = self.0.lock();
        state.phase = ExchangePhase::SendResponse;
        state.unflushed = true;
    }

    pub(super) fn take_output(&self) -> Vec<u8> {
        take(&mut self.0.lock().pending_output)
    }

    /// Notes that hyper's output is flushed, and keeps the waker for later interim responses.
    pub(super) fn on_flush(&self, cx: &Context<'_>) {
        let mut state = self.0.lock();
        state.unflushed = false;
        let waited = state.waker.take().is_some_and(|(_, waits)| waits);
        state.waker = Some((cx.waker().clone(), false));
        if waited {
            state.wake();
        }
    }

    pub(super) fn take_body(&self) -> Option<Framing> {
        self.0.lock().body.take()
    }

    /// Notes that hyper may hold output that it has not written yet.
    pub(super) fn require_flush(&self) {
        self.0.lock().unflushed = true;
    }

    /// Ready once all output is written and flushed.
    pub(super) fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.unflushed {
            state.waker = Some((cx.waker().clone(), true));
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Ready once the previous response is flushed: then the next request may begin.
    pub(super) fn poll_next_request(&self, cx: &Context<'_>) -> Poll<()> {
        ready!(self.poll_flushed(cx));
        self.0.lock().phase = ExchangePhase::AwaitRequest;
        Poll::Ready(())
    }
}

impl State {
    fn wake(&self) {
        if let Some((waker, _)) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
