// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer between two legs: bytes in both directions, each of which ends separately.
//!
//! Written as polled states instead of nested `async fn`s: thousands of connections are idle at a
//! time, and this state is the size of an idle one.

pub(crate) mod striped;

use crate::{
    config::settings::Mode,
    faults::{fault::Fault, limited_leg::ReportLimited},
    leg::stall::StallDetector,
    leg::window::SendWindow,
    records::{
        counters::{Counters, GaugeGuard, Pause, Pauses, Traffic},
        times::FirstByteTimer,
    },
    route::upstream_leg::UpstreamLeg,
    stripe::{growth::Growth, incoming_groups::JoinTicket},
};
use longhaul_admission::rate_limits::{Direction, RateLimits};
use longhaul_linux::pipe_pool::{self, Lease, Pool, Shortfall};
use longhaul_transport::{
    channel::{read_some, write_all},
    leg::Leg,
};
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::{
    task::yield_now,
    time::{sleep, sleep_until, timeout},
};
use tracing::warn;

/// End of a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// Both directions ended by FIN, and every byte was delivered.
    Finished,
    /// A leg ended abnormally.
    Broken(Side, io::Error),
    /// No connection to the destination was made.
    Failed(Fault),
    /// The relay cut the connection.
    Cut,
    /// The connection has become a further leg of another client's connection.
    Joined(JoinTicket),
}

/// Side of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Towards the client.
    Downstream,
    /// Towards the destination.
    Upstream,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Downstream => Self::Upstream,
            Self::Upstream => Self::Downstream,
        }
    }
}

/// Counters, limits and resources of a transfer, besides its two legs.
pub(crate) struct TransferContext<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) counters: &'a Counters,
    pub(crate) traffic: &'a Traffic,
    pub(crate) pauses: &'a Pauses,
    pub(crate) first_byte: &'a FirstByteTimer,
    /// Rate limits.
    pub(crate) limits: &'a RateLimits,
    /// Copy mode.
    pub(crate) mode: Mode,
    /// Set when the first byte is taken from the client.
    pub(crate) client_bytes_taken: &'a AtomicBool,
    /// Observes the leg to a peer, if further legs may join it.
    pub(crate) growth: Option<&'a Growth>,
    /// Whether further legs may join the client's.
    pub(crate) client_legs_may_join: bool,
    /// Reports a leg that a buffer limits.
    pub(crate) report_limited: &'a ReportLimited<'a>,
    /// Whether the client has taken nothing for too long to get what a broken destination has sent.
    pub(crate) has_client_stalled: &'a (dyn Fn(&mut StallDetector) -> bool + Sync),
}

impl TransferContext<'_> {
    /// Returns whether further legs may join the sink of this direction.
    fn sink_legs_may_join(&self, direction: Direction) -> bool {
        match direction {
            Direction::Up => self.growth.is_some(),
            Direction::Down => self.client_legs_may_join,
        }
    }

    /// Waits until the client does not get the rest of what a broken destination has sent.
    async fn wait_for_stalled_client(&self) {
        let mut stall = StallDetector::default();
        while !(self.has_client_stalled)(&mut stall) {
            sleep(STALL_CHECK_INTERVAL).await;
        }
    }

    pub(super) fn count_delivered(&self, direction: Direction, bytes: usize) {
        self.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
        if let Some(growth) = self.growth {
            growth.count(bytes);
        }
        if direction == Direction::Down && bytes > 0 {
            self.first_byte.record_first_byte(&self.counters.times);
        }
    }
}

/// Time between two looks at a client that is to get the rest of what a broken destination has sent.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why [`run`] returned.
pub(crate) enum Outcome<'a> {
    Ended(End),
    /// A leg has joined. Both directions continue in [`striped::run`].
    Joined(Progress<'a>),
}

/// Relays until both directions have ended, or one leg breaks. `on_success` is the answer to the
/// client once the destination is reached. The caller resets both legs unless the end is
/// [`End::Finished`] or [`End::Failed`].
///
/// The client's bytes are sent at once, without waiting for a peer's answer (RFC 8803 §3, 0-RTT).
///
/// `joined` lets further legs join. Once it is ready and the client has its answer, the transfer is handed over.
///
/// The future has no copy of the arguments: each idle connection would keep it.
pub(crate) fn run<'a>(
    downstream: &'a Leg,
    upstream: &'a UpstreamLeg,
    on_success: &'a [u8],
    context: &'a TransferContext<'a>,
    mut joined: impl FnMut(&mut Context<'_>) -> Poll<()>,
) -> impl Future<Output = Outcome<'a>> {
    let mut transfer = Some(Transfer {
        answer: answer(downstream, upstream, on_success, context),
        is_up_broken: false,
        up: HalfTransfer::new(Direction::Up, downstream, &upstream.leg, context),
        down: HalfTransfer::new(Direction::Down, &upstream.leg, downstream, context),
    });
    poll_fn(move |cx| {
        let Some(running) = &mut transfer else {
            return Poll::Pending;
        };
        match Pin::new(&mut *running).poll(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Outcome::Ended(End::Finished)),
            Poll::Ready(Err(end)) => return Poll::Ready(Outcome::Ended(end)),
            Poll::Pending if joined(cx).is_ready() && running.can_continue() => {}
            Poll::Pending => return Poll::Pending,
        }
        match transfer.take() {
            Some(Transfer { up, down, .. }) => Poll::Ready(Outcome::Joined(Progress {
                up: up.into_progress(),
                down: down.into_progress(),
            })),
            None => Poll::Pending,
        }
    })
}

/// How far both directions are.
pub(crate) struct Progress<'a> {
    pub(crate) up: HalfProgress<'a>,
    pub(crate) down: HalfProgress<'a>,
}

/// How far one direction is.
pub(crate) struct HalfProgress<'a> {
    /// Bytes of the stream taken from the source.
    pub(crate) taken: u64,
    /// Bytes among them that the sink has not taken.
    leftover: Option<Box<PendingWrite<'a>>>,
    /// Waits for a rate limit.
    pause: Option<BoxFuture<'static, ()>>,
    /// Whether the source has ended, and the sink has taken the end.
    is_finished: bool,
}

/// Waits for the peer's answer, then answers the client; `None` if there is neither answer.
fn answer<'a>(
    downstream: &'a Leg,
    upstream: &'a UpstreamLeg,
    on_success: &'a [u8],
    context: &'a TransferContext<'a>,
) -> Option<BoxFuture<'a, Result<FirstBytes, End>>> {
    let has_any = upstream.awaits_answer() || !on_success.is_empty();
    has_any.then(|| {
        let answer = async move {
            upstream.answer().await.map_err(End::Failed)?;
            let sent = send_answer(downstream, upstream, on_success, context).await;
            sent.map_err(|error| error.end(Direction::Down))
        };
        Box::pin(answer) as BoxFuture<'a, _>
    })
}

/// Bytes of the destination that were sent with the answer.
struct FirstBytes {
    len: usize,
    /// Time at which the next bytes may be taken.
    pause: Option<Instant>,
}

/// Answers the client. Bytes that the
/// destination sends within the reply delay are sent in the same write. The answer alone would take
/// a segment of its own, one of the ten of the initial window.
async fn send_answer(
    downstream: &Leg,
    upstream: &UpstreamLeg,
    on_success: &[u8],
    context: &TransferContext<'_>,
) -> Result<FirstBytes, TransferError> {
    let mut answer = on_success.to_vec();
    let first_bytes = match upstream.reply_delay() {
        Some(reply_delay) if !answer.is_empty() => {
            let read_max = context
                .limits
                .chunk(Direction::Down)
                .min(FIRST_BYTES_LEN_MAX);
            let first = read_some(&upstream.leg, &mut answer, read_max);
            timeout(reply_delay, first).await.unwrap_or(Ok(0))
        }
        _ => Ok(0),
    };
    let sent = write_all(downstream, &answer).await;
    sent.map_err(TransferError::Sink)?;
    // The next read finds an end again, but not an error.
    let len = first_bytes.map_err(TransferError::Source)?;
    context.count_delivered(Direction::Down, len);
    let pause = context.limits.spend(Direction::Down, len, Instant::now);
    Ok(FirstBytes { len, pause })
}

/// Maximum size of the first bytes sent with an answer. It is larger than a usual initial window,
/// so that the rest of the flight does not begin in the middle of a segment.
const FIRST_BYTES_LEN_MAX: usize = 64 * 1024;

/// Transfer in both directions.
struct Transfer<'a> {
    /// Pending answer. Until it is done, nothing else is read from the upstream leg.
    answer: Option<BoxFuture<'a, Result<FirstBytes, End>>>,
    /// Whether the upstream leg takes no more bytes. What it has sent is delivered first.
    is_up_broken: bool,
    up: HalfTransfer<'a>,
    down: HalfTransfer<'a>,
}

impl Future for Transfer<'_> {
    type Output = Result<(), End>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let up = this.poll_up(cx)?;
        let down = this.poll_down(cx)?;
        if up.is_ready() && down.is_ready() {
            return Poll::Ready(Ok(()));
        }
        this.up.watch(cx)?;
        this.down.watch(cx)?;
        Poll::Pending
    }
}

impl Transfer<'_> {
    /// Whether both directions can be continued elsewhere. One that has begun to end goes on until its sink has the end.
    fn can_continue(&self) -> bool {
        let is_ending = |half: &HalfTransfer<'_>| matches!(half.state, HalfState::Finishing);
        self.answer.is_none()
            && self.down.source_error.is_none()
            && !is_ending(&self.up)
            && !is_ending(&self.down)
    }

    /// Polls the up direction. An error of the upstream leg waits for the other direction. A peer that refuses may close
    /// before it has read everything, and its answer says more. A destination may have answered before it resets.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.is_up_broken {
            return Poll::Pending;
        }
        match self.up.poll(cx) {
            Poll::Ready(Err(End::Broken(Side::Upstream, error))) => {
                self.is_up_broken = true;
                self.down.source_error.get_or_insert(error);
                Poll::Pending
            }
            polled => polled,
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if let Some(answer) = &mut self.answer {
            let FirstBytes { len, pause } = ready!(answer.as_mut().poll(cx))?;
            self.answer = None;
            self.down.taken += len as u64;
            self.down.state = state_after_delivery(pause);
        }
        ready!(self.down.poll(cx))?;
        match self.down.source_error.take() {
            Some(error) => Poll::Ready(Err(End::Broken(Side::Upstream, error))),
            None => Poll::Ready(Ok(())),
        }
    }
}

/// One direction: moves all bytes from one leg to the other, then the end.
struct HalfTransfer<'a> {
    direction: Direction,
    from: &'a Leg,
    to: &'a Leg,
    context: &'a TransferContext<'a>,
    /// Whether large reads are expected: then a pipe is worth its two system calls.
    bulk: bool,
    /// Bytes of the stream taken from the source.
    taken: u64,
    /// Window of the sink, once much is moved: an idle connection does not need the space.
    window: Option<Box<SendWindow>>,
    state: HalfState<'a>,
    /// Watches `from` for errors while nothing is read from it; otherwise a RST would go unnoticed.
    watch: Option<BoxFuture<'a, io::Error>>,
    /// Error of the destination's leg. The client gets what the leg had received before it.
    source_error: Option<io::Error>,
    /// Ends when the client does not take that.
    patience: Option<BoxFuture<'a, ()>>,
}

/// State of a direction: the event that it waits for.
enum HalfState<'a> {
    /// Waits until the source is readable.
    Reading,
    /// Waits until the sink takes the remaining bytes. In a box: an idle connection does not need
    /// the space.
    Delivering(Box<PendingWrite<'a>>),
    /// Waits for a rate limit, or yields to other connections.
    Pausing(BoxFuture<'static, ()>),
    /// Waits until the sink takes the end.
    Finishing,
    Finished,
}

/// Bytes taken from the source and not yet given to the sink. They are lost if the source breaks,
/// as are bytes queued in the sink's socket.
struct PendingWrite<'a> {
    buffer: Lease<'a>,
    /// Time at which the next bytes may be taken.
    pause: Option<Instant>,
    _counted: GaugeGuard<'a>,
    _paused: Pause<'a>,
}

pub(super) enum TransferError {
    Source(io::Error),
    Sink(io::Error),
}

impl TransferError {
    pub(super) fn end(self, direction: Direction) -> End {
        let source = match direction {
            Direction::Up => Side::Downstream,
            Direction::Down => Side::Upstream,
        };
        match self {
            Self::Source(error) => End::Broken(source, error),
            Self::Sink(error) => End::Broken(source.other(), error),
        }
    }
}

/// Fills of one buffer before other connections of this thread run: 16 MiB with pipes of 1 MiB.
const FILLS_PER_YIELD: usize = 16;

/// Size in bytes below which reads are copied: below a few pages, splice(2) costs more than it
/// saves.
pub(super) const BULK_BYTES: usize = 16 * 1024;

impl<'a> HalfTransfer<'a> {
    fn new(
        direction: Direction,
        from: &'a Leg,
        to: &'a Leg,
        context: &'a TransferContext<'a>,
    ) -> Self {
        Self {
            direction,
            from,
            to,
            context,
            bulk: false,
            taken: 0,
            window: None,
            state: HalfState::Reading,
            watch: None,
            source_error: None,
            patience: None,
        }
    }

    fn into_progress(self) -> HalfProgress<'a> {
        let is_finished = matches!(self.state, HalfState::Finished);
        let (leftover, pause) = match self.state {
            HalfState::Delivering(pending) => (Some(pending), None),
            HalfState::Pausing(pause) => (None, Some(pause)),
            HalfState::Reading | HalfState::Finishing | HalfState::Finished => (None, None),
        };
        HalfProgress {
            taken: self.taken,
            leftover,
            pause,
            is_finished,
        }
    }

    /// Moves bytes until the source's FIN, which is passed on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let direction = self.direction;
        self.advance(cx).map_err(|error| error.end(direction))
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransferError>> {
        loop {
            self.state = match &mut self.state {
                HalfState::Reading => match self.from.poll_read_ready(cx) {
                    Poll::Ready(ready) => {
                        ready.map_err(TransferError::Source)?;
                        self.move_available(cx)?
                    }
                    Poll::Pending => {
                        self.check_source()?;
                        return Poll::Pending;
                    }
                },
                HalfState::Delivering(pending) => {
                    let buffer = &mut pending.buffer;
                    ready!(deliver(self.direction, self.to, self.context, buffer, cx))?;
                    state_after_delivery(pending.pause)
                }
                HalfState::Pausing(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    HalfState::Reading
                }
                HalfState::Finishing => {
                    ready!(self.to.poll_finish_sending(cx)).map_err(TransferError::Sink)?;
                    HalfState::Finished
                }
                HalfState::Finished => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Leases a buffer, moves the available bytes, returns the buffer, and returns the next
    /// state.
    fn move_available(&mut self, cx: &mut Context<'_>) -> Result<HalfState<'a>, TransferError> {
        let mut buffer = self.lease_buffer();
        let mut moved = 0;
        for _ in 0..FILLS_PER_YIELD {
            let most = self.read_size_max();
            let filled = match self.from.fill(&mut buffer, most) {
                Ok(0) => {
                    self.check_source()?;
                    return Ok(HalfState::Finishing);
                }
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.bulk &= moved >= BULK_BYTES;
                    return Ok(HalfState::Reading);
                }
                Err(error) => return Err(TransferError::Source(error)),
            };
            moved += filled;
            self.taken += filled as u64;
            self.observe_window(filled);
            let pause = self.spend_rate_limit(filled);
            match deliver(self.direction, self.to, self.context, &mut buffer, cx)? {
                Poll::Ready(()) => {}
                Poll::Pending => return Ok(self.deliver_later(buffer, pause)),
            }
            if pause.is_some() {
                return Ok(state_after_delivery(pause));
            }
            if !self.bulk && filled == most {
                self.bulk = true;
                drop(buffer);
                buffer = self.lease_buffer();
            }
        }
        Ok(HalfState::Pausing(Box::pin(yield_now())))
    }

    /// Returns the error of the source, from which nothing more is to come. A reset that was reported already looks like
    /// an end.
    fn check_source(&mut self) -> Result<(), TransferError> {
        self.source_error
            .take()
            .map_or(Ok(()), |error| Err(TransferError::Source(error)))
    }

    /// Enlarges the sink's window where more legs do not, and reports what limits it.
    fn observe_window(&mut self, bytes: usize) {
        if !self.bulk {
            return;
        }
        let may_enlarge = !self.context.sink_legs_may_join(self.direction);
        let window = self.window.get_or_insert_default();
        if let Some(limited) = window.count(bytes, self.to, may_enlarge) {
            (self.context.report_limited)(&limited);
        }
    }

    fn lease_buffer(&self) -> Lease<'a> {
        let mode = match (self.context.mode, self.bulk) {
            (Mode::Splice, _) | (Mode::Auto, true) => pipe_pool::Mode::Splice,
            (Mode::Copy, _) | (Mode::Auto, false) => pipe_pool::Mode::Copy,
        };
        let lease = self.context.pool.lease(mode);
        report_shortfall(self.context.pool);
        lease
    }

    /// Returns the maximum size of the next read.
    fn read_size_max(&self) -> usize {
        let chunk = self.context.limits.chunk(self.direction);
        match (self.context.mode, self.bulk) {
            (Mode::Auto, false) => chunk.min(BULK_BYTES),
            _ => chunk,
        }
    }

    /// Counts bytes that were taken, and returns the time until which the rate limit pauses
    /// reading.
    fn spend_rate_limit(&self, bytes: usize) -> Option<Instant> {
        if self.direction == Direction::Up {
            self.context.client_bytes_taken.store(true, Relaxed);
        }
        let limits = self.context.limits;
        limits.spend(self.direction, bytes, Instant::now)
    }

    fn deliver_later(&self, buffer: Lease<'a>, pause: Option<Instant>) -> HalfState<'a> {
        HalfState::Delivering(Box::new(PendingWrite {
            _counted: self.context.counters.count_buffered(buffer.buffered_len()),
            _paused: self
                .context
                .pauses
                .begin(self.direction, buffer.buffered_len()),
            buffer,
            pause,
        }))
    }

    /// Looks for an error of `from` that no read would find now. One of the client ends the connection. After one of the
    /// destination, the client gets what was received before it, as long as it takes that.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if matches!(self.state, HalfState::Reading) {
            self.watch = None;
            return Ok(());
        }
        if self.source_error.is_none() {
            self.source_error = self.poll_error(cx);
        }
        let is_over = match (&self.source_error, self.direction) {
            (None, _) => false,
            (Some(_), Direction::Up) => true,
            (Some(_), Direction::Down) => {
                matches!(self.state, HalfState::Finished) || self.poll_patience(cx).is_ready()
            }
        };
        if is_over {
            self.check_source().map_err(|e| e.end(self.direction))
        } else {
            Ok(())
        }
    }

    fn poll_error(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        let from = self.from;
        let watch = self
            .watch
            .get_or_insert_with(|| Box::pin(from.transport().wait_error()));
        match watch.as_mut().poll(cx) {
            Poll::Ready(error) => {
                self.watch = None;
                Some(error)
            }
            Poll::Pending => None,
        }
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let context = self.context;
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(context.wait_for_stalled_client()));
        patience.as_mut().poll(cx)
    }
}

/// Returns the state after a delivery.
fn state_after_delivery<'a>(pause: Option<Instant>) -> HalfState<'a> {
    match pause {
        Some(until) => HalfState::Pausing(Box::pin(sleep_until(until.into()))),
        None => HalfState::Reading,
    }
}

/// Empties the buffer into the sink.
fn deliver(
    direction: Direction,
    to: &Leg,
    context: &TransferContext<'_>,
    buffer: &mut Lease<'_>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), TransferError>> {
    while buffer.buffered_len() > 0 {
        match to.drain(buffer) {
            Ok(delivered) => {
                context.count_delivered(direction, delivered);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(to.poll_write_ready(cx)).map_err(TransferError::Sink)?;
            }
            Err(error) => return Poll::Ready(Err(TransferError::Sink(error))),
        }
    }
    to.poll_flush(cx).map_err(TransferError::Sink)
}

/// Logs once that pipes are smaller than requested, or missing.
pub(super) fn report_shortfall(pool: &Pool) {
    static LOGGED: Once = Once::new();
    if let Some(shortfall) = pool.take_shortfall() {
        LOGGED.call_once(|| match shortfall {
            Shortfall::SmallPipes(bytes) => warn!(
                "the kernel grants pipes of {} KiB only, which costs CPU: raise \
                 fs.pipe-max-size and fs.pipe-user-pages-soft",
                bytes / 1024
            ),
            Shortfall::NoPipe(error) => {
                warn!("no pipe ({error}): bytes are copied instead");
            }
        });
    }
}
