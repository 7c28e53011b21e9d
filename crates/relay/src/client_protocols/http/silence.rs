// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response time-out for HTTP origins. An origin that sends or takes bytes, however slowly, does
//! not time out. Neither does time count while the client must act, or while a slow client blocks
//! the origin.

use crate::{
    client_protocols::http::exchange::Exchange, route::far::Far, session::http_memory::HttpMemory,
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
const LOOKS: u32 = 4;

/// Lowest rate, in bytes a second, at which a peer is assumed to forward its backlog: 8 kbit/s.
const SLOWEST: f64 = 1000.0;

/// Largest backlog assumed at a peer, in bytes: a common socket buffer on long fat paths. At the
/// lowest rate it lasts 4 h 40 min.
const PEER_BYTES_MAX: f64 = (16 << 20) as f64;

/// Response timer of one exchange with an origin.
pub(crate) struct Silence {
    far: Arc<Far>,
    progress: Arc<Progress>,
    look: Interval,
    /// Consecutive checks without progress.
    vain: u32,
    /// Data has arrived since the last check.
    heard: bool,
    /// Byte counts at the last check.
    seen: Passed,
    /// Estimated backlog of the peer in bytes.
    with_peer: f64,
}

impl Silence {
    /// Timer for an origin behind `far`; the limit does not apply while the client must act.
    pub(crate) fn new(far: &Arc<Far>, progress: &Arc<Progress>, limit: Duration) -> Self {
        let step = (limit / LOOKS).max(Duration::from_millis(1));
        let mut look = interval_at(Instant::now() + step, step);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            seen: Passed::over(far).unwrap_or_default(),
            with_peer: 0.0,
            far: far.clone(),
            progress: progress.clone(),
            look,
            vain: 0,
            heard: false,
        }
    }

    /// Returns when the origin has timed out, after resetting the connection. Await it only while
    /// there is nothing to read from the origin.
    pub(crate) async fn too_long(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.vain < LOOKS {
            ready!(self.look.poll_tick(cx));
            self.vain = if self.has_moved() { 0 } else { self.vain + 1 };
        }
        self.far.stream.carrier().reset();
        Poll::Ready(())
    }

    fn has_moved(&mut self) -> bool {
        let Some(passed) = Passed::over(&self.far) else {
            return false;
        };
        let before = std::mem::replace(&mut self.seen, passed);
        let with_peer = self.is_with_peer(passed.up.saturating_sub(before.up));
        let heard = std::mem::take(&mut self.heard) || passed != before;
        heard || with_peer || self.progress.unasked.load(Relaxed)
    }

    /// Whether sent bytes may still be queued at the peer, which has taken `more` since the last
    /// check.
    fn is_with_peer(&mut self, more: u64) -> bool {
        let left = SLOWEST * self.look.period().as_secs_f64();
        self.with_peer = (self.with_peer + more as f64).min(PEER_BYTES_MAX) - left;
        self.with_peer = self.with_peer.max(0.0);
        self.far.peer.is_some() && self.with_peer > 0.0
    }
}

/// Bytes acknowledged by the neighbour, and received from it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Passed {
    up: u64,
    down: u64,
}

impl Passed {
    fn over(far: &Far) -> Option<Self> {
        let info = far.stream.carrier().tcp_info()?;
        Some(Self {
            up: info.acked_bytes,
            down: info.received_bytes,
        })
    }
}

/// Error of a response that timed out.
pub(crate) fn fallen_silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the origin has fallen silent")
}

/// Progress of a request.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The client must act: the rest of the request is missing.
    unasked: AtomicBool,
    /// The response arrived before the body, which is not sent.
    pub(super) refused: AtomicBool,
    /// Trailer section that replaces the end of the request.
    pub(super) trailers: Mutex<Option<Vec<u8>>>,
}

impl Progress {
    /// Notes that the origin has sent 100 (Continue).
    pub(super) fn invited(&self) {
        self.unasked.store(true, Relaxed);
    }
}

/// Request body that records whether the client must act.
pub(crate) struct Upload {
    body: Incoming,
    progress: Arc<Progress>,
    exchange: Arc<Exchange>,
    memory: Arc<HttpMemory>,
}

impl Upload {
    pub(crate) fn new(
        body: Incoming,
        progress: &Arc<Progress>,
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

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if self.progress.refused.load(Relaxed) {
            return Poll::Pending;
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let unasked = frame.is_pending() && !self.exchange.is_held_back();
        self.progress.unasked.store(unasked, Relaxed);
        let frame = match ready!(frame) {
            Some(Ok(frame)) => frame.into_trailers().map(|trailers| {
                *self.progress.trailers.lock() = Some(end_with_trailers(&trailers));
            }),
            Some(Err(error)) => {
                if is_malformed(&error) {
                    self.exchange.refuse_body();
                }
                return Poll::Ready(Some(Err(error)));
            }
            None => Ok(()),
        };
        match frame {
            Ok(()) => Poll::Ready(None),
            Err(data) => {
                self.exchange.body_comes();
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
fn is_of_trailers(error: &hyper::Error) -> bool {
    let words = ["invalid header name", "invalid header value"];
    cause(error).is_some_and(|cause| words.contains(&cause.to_string().as_str()))
}

fn cause(error: &hyper::Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

/// Whether the body is malformed, rather than truncated.
fn is_malformed(error: &hyper::Error) -> bool {
    let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::InvalidData];
    cause(error).is_some_and(|cause| kinds.contains(&cause.kind()))
}

/// An origin that stops reading the body no longer waits for the client.
impl Drop for Upload {
    fn drop(&mut self) {
        self.progress.unasked.store(false, Relaxed);
        self.memory.end_message();
    }
}

/// Response body that fails when its origin times out.
pub(crate) struct Download {
    body: Incoming,
    silence: Silence,
    exchange: Arc<Exchange>,
    /// Task of the connection, if it closes after this response.
    last: Option<AbortHandle>,
}

impl Download {
    pub(crate) fn new(body: Incoming, silence: Silence, exchange: &Arc<Exchange>) -> Self {
        Self {
            body,
            silence,
            exchange: exchange.clone(),
            last: None,
        }
    }

    /// Closes the connection after this response: the origin still waits for a body that will not
    /// come, or its messages are ambiguous.
    pub(super) fn is_last_of(&mut self, connection: AbortHandle) {
        self.last = Some(connection);
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(connection) = &self.last {
            connection.abort();
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.silence.poll(cx));
            return Poll::Ready(Some(Err(fallen_silent())));
        };
        self.silence.heard = true;
        Poll::Ready(match frame.map(|frame| frame.map(Frame::into_trailers)) {
            None => None,
            Some(Err(error)) if is_of_trailers(&error) => None,
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
