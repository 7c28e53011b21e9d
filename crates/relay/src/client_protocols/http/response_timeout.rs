// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response time-out for HTTP origins. An origin that sends or takes bytes, however slowly, does
//! not time out. Neither does time count while the client must act, or while a slow client blocks
//! the origin.

use crate::{
    client_protocols::http::exchange::Exchange, route::upstream_leg::UpstreamLeg,
    session::http_memory::HttpMemory,
};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use longhaul_protocol::proxy_headers::end_with_trailers;
use parking_lot::Mutex;
use std::{
    error::Error as _,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    task::AbortHandle,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

/// Checks of the connection within the time limit: a time-out is detected at most a quarter of the
/// limit late.
const CHECKS: u32 = 4;

/// Lowest rate, in bytes a second, at which a peer is assumed to forward its backlog: 8 kbit/s.
const PEER_RATE_MIN: f64 = 1000.0;

/// Largest backlog assumed at a peer, in bytes: a common socket buffer on long fat paths. At the
/// lowest rate it lasts 4 h 40 min.
const PEER_BYTES_MAX: f64 = (16 << 20) as f64;

/// Response timer of one exchange with an origin.
pub(crate) struct ResponseTimeout {
    upstream: Arc<UpstreamLeg>,
    progress: Arc<RequestProgress>,
    timer: Interval,
    /// Consecutive checks without progress.
    idle_checks: u32,
    /// Data has arrived since the last check.
    received: bool,
    /// Byte counts at the last check.
    counts: ByteCounts,
    /// Estimated backlog of the peer in bytes.
    peer_backlog: f64,
}

impl ResponseTimeout {
    /// Timer for an origin behind `upstream_leg`; the limit does not apply while the client must act.
    pub(crate) fn new(
        upstream: &Arc<UpstreamLeg>,
        progress: &Arc<RequestProgress>,
        limit: Duration,
    ) -> Self {
        let step = (limit / CHECKS).max(Duration::from_millis(1));
        let mut timer = interval_at(Instant::now() + step, step);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            counts: ByteCounts::of(upstream).unwrap_or_default(),
            peer_backlog: 0.0,
            upstream: upstream.clone(),
            progress: progress.clone(),
            timer,
            idle_checks: 0,
            received: false,
        }
    }

    /// Returns when the origin has timed out, after resetting the connection. Await it only while
    /// there is nothing to read from the origin.
    pub(crate) async fn expired(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.idle_checks < CHECKS {
            ready!(self.timer.poll_tick(cx));
            self.idle_checks = if self.has_progress() {
                0
            } else {
                self.idle_checks + 1
            };
        }
        self.upstream.leg.transport().reset();
        Poll::Ready(())
    }

    fn has_progress(&mut self) -> bool {
        let Some(counts) = ByteCounts::of(&self.upstream) else {
            return false;
        };
        let before = std::mem::replace(&mut self.counts, counts);
        let has_backlog = self.update_peer_backlog(counts.up.saturating_sub(before.up));
        let received = std::mem::take(&mut self.received) || counts != before;
        received || has_backlog || self.progress.awaiting_client.load(Relaxed)
    }

    /// Whether sent bytes may still be queued at the peer, which has taken `more` since the last
    /// check.
    fn update_peer_backlog(&mut self, more: u64) -> bool {
        let left = PEER_RATE_MIN * self.timer.period().as_secs_f64();
        self.peer_backlog = (self.peer_backlog + more as f64).min(PEER_BYTES_MAX) - left;
        self.peer_backlog = self.peer_backlog.max(0.0);
        self.upstream.peer.is_some() && self.peer_backlog > 0.0
    }
}

/// Bytes acknowledged by the neighbour, and received from it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ByteCounts {
    up: u64,
    down: u64,
}

impl ByteCounts {
    fn of(upstream: &UpstreamLeg) -> Option<Self> {
        let info = upstream.leg.transport().tcp_info()?;
        Some(Self {
            up: info.acked_bytes,
            down: info.received_bytes,
        })
    }
}

/// Error of a response that timed out.
pub(crate) fn timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the origin timed out")
}

/// Progress of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestProgress {
    /// The client must act: the rest of the request is missing.
    awaiting_client: AtomicBool,
    /// The response arrived before the body, which is not sent.
    pub(super) body_refused: AtomicBool,
    /// Trailer section that replaces the end of the request.
    pub(super) trailers: Mutex<Option<Vec<u8>>>,
}

impl RequestProgress {
    /// Notes that the origin has sent 100 (Continue).
    pub(super) fn on_continue(&self) {
        self.awaiting_client.store(true, Relaxed);
    }
}

/// Request body that records whether the client must act.
pub(crate) struct RequestBody {
    body: Incoming,
    progress: Arc<RequestProgress>,
    exchange: Arc<Exchange>,
    memory: Arc<HttpMemory>,
}

impl RequestBody {
    pub(crate) fn new(
        body: Incoming,
        progress: &Arc<RequestProgress>,
        exchange: &Arc<Exchange>,
        memory: &Arc<HttpMemory>,
    ) -> Self {
        Self {
            body,
            progress: progress.clone(),
            exchange: exchange.clone(),
            memory: memory.clone(),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if self.progress.body_refused.load(Relaxed) {
            return Poll::Pending;
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let unasked = frame.is_pending() && !self.exchange.awaits_continue();
        self.progress.awaiting_client.store(unasked, Relaxed);
        let frame = match ready!(frame) {
            Some(Ok(frame)) => frame.into_trailers().map(|trailers| {
                *self.progress.trailers.lock() = Some(end_with_trailers(&trailers));
            }),
            Some(Err(error)) => {
                self.exchange.refuse_body(body_fault(&error));
                return Poll::Ready(Some(Err(error)));
            }
            None => Ok(()),
        };
        match frame {
            Ok(()) => Poll::Ready(None),
            Err(data) => {
                self.exchange
                    .on_body_data(data.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether the body is complete and only its trailers are malformed: they may be dropped (RFC 9110
/// §6.5.1). hyper reports it in its parser's words for fields.
fn is_trailer_error(error: &hyper::Error) -> bool {
    let words = ["invalid header name", "invalid header value"];
    cause(error).is_some_and(|cause| words.contains(&cause.to_string().as_str()))
}

fn cause(error: &hyper::Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

/// Reason for which a client's body is refused.
fn body_fault(error: &hyper::Error) -> &'static str {
    if is_malformed(error) {
        "the request's body can't be read: chunks are HEX-LENGTH CRLF DATA CRLF, then 0 CRLF, trailers \
         (NAME: VALUE CRLF) and CRLF (RFC 9112 §7.1)"
    } else {
        "the request's body was cut short: its length or its last chunk promised more"
    }
}

/// Whether the body is malformed, rather than truncated.
fn is_malformed(error: &hyper::Error) -> bool {
    let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::InvalidData];
    cause(error).is_some_and(|cause| kinds.contains(&cause.kind()))
}

/// An origin that stops reading the body no longer waits for the client.
impl Drop for RequestBody {
    fn drop(&mut self) {
        self.progress.awaiting_client.store(false, Relaxed);
        self.memory.end_message();
    }
}

/// Response body that fails when its origin times out.
pub(crate) struct ResponseBody {
    body: Incoming,
    timeout: ResponseTimeout,
    exchange: Arc<Exchange>,
    /// Task of the connection, if it closes after this response.
    closing_task: Option<AbortHandle>,
}

impl ResponseBody {
    pub(crate) fn new(body: Incoming, timeout: ResponseTimeout, exchange: &Arc<Exchange>) -> Self {
        Self {
            body,
            timeout,
            exchange: exchange.clone(),
            closing_task: None,
        }
    }

    /// Closes the connection after this response: the origin still waits for a body that will not
    /// come, or its messages are ambiguous.
    pub(super) fn close_after(&mut self, connection: AbortHandle) {
        self.closing_task = Some(connection);
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(connection) = &self.closing_task {
            connection.abort();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.timeout.poll(cx));
            return Poll::Ready(Some(Err(timeout_error())));
        };
        self.timeout.received = true;
        Poll::Ready(match frame.map(|frame| frame.map(Frame::into_trailers)) {
            None => None,
            Some(Err(error)) if is_trailer_error(&error) => None,
            Some(Err(error)) => Some(Err(io::Error::other(error))),
            Some(Ok(Err(data))) => Some(Ok(data)),
            Some(Ok(Ok(trailers))) => {
                self.exchange.set_trailers(end_with_trailers(&trailers));
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
