// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer of a connection with a bundle on at least one side. It takes over from `transfer::run` when the first leg
//! joins, in the middle of the stream.

use crate::{
    config::settings::Mode,
    stripe::{
        bundle::Bundle,
        choice::choose_legs,
        receiver::StripeReceiver,
        sender::{OutgoingPiece, StripeSender},
    },
    transfer::{
        BULK_BYTES, End, HalfProgress, Progress, Side, TransferContext, TransferError, deliver,
        report_shortfall,
    },
};
use longhaul_admission::rate_limits::Direction;
use longhaul_linux::{
    pipe_pool::{self, Lease},
    transfer_buffer::TransferBuffer,
};
use longhaul_transport::leg::Leg;
use parking_lot::Mutex;
use std::{
    future::{pending, poll_fn},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};
use tokio::{select, sync::Notify, task::yield_now, time::sleep_until};

/// Both sides of a connection.
pub(crate) struct StripedLegs<'a> {
    pub(crate) downstream: StripedLeg<'a>,
    pub(crate) upstream: StripedLeg<'a>,
}

/// One side: a leg, or a bundle of which it is the first leg.
#[derive(Clone, Copy)]
pub(crate) struct StripedLeg<'a> {
    pub(crate) first: &'a Leg,
    pub(crate) bundle: Option<&'a Arc<Bundle>>,
    /// Bytes of the client that the first leg carried before the transfer began.
    pub(crate) early_bytes: u64,
    /// Whether the sender chooses the number of legs that it uses.
    pub(crate) is_automatic: bool,
}

/// Relays until both directions have ended, or a leg breaks.
pub(crate) async fn run(
    legs: &StripedLegs<'_>,
    progress: Progress<'_>,
    context: &TransferContext<'_>,
) -> End {
    let (downstream, upstream) = (legs.downstream, legs.upstream);
    let broken_upstream = BrokenUpstream::default();
    let up = async {
        let up = progress.up;
        let ended = transfer_half(Direction::Up, downstream, upstream, up, None, context);
        broken_upstream.end_up(ended.await).await
    };
    let down = async {
        let (down, broken) = (progress.down, Some(&broken_upstream));
        transfer_half(Direction::Down, upstream, downstream, down, broken, context).await?;
        broken_upstream.end_down()
    };
    let outcome = select! {
        biased;
        ended = async { tokio::try_join!(up, down).map(drop) } => ended,
        error = downstream.wait_for_error() => Err(End::Broken(Side::Downstream, error)),
        end = broken_upstream.wait_until_undeliverable(upstream, context) => Err(end),
        () = downstream.choose_legs(context) => unreachable!("it has no end"),
        () = upstream.choose_legs(context) => unreachable!("it has no end"),
    };
    match outcome {
        Ok(()) => End::Finished,
        Err(end) => end,
    }
}

/// State of an upstream side that has failed. The client gets what was received before that.
#[derive(Default)]
struct BrokenUpstream {
    error: Mutex<Option<io::Error>>,
    /// Whether the client's side has taken everything, the end included.
    is_delivered: AtomicBool,
    delivered: Notify,
}

impl BrokenUpstream {
    fn is_broken(&self) -> bool {
        self.error.lock().is_some()
    }

    fn take_error(&self) -> Option<io::Error> {
        self.error.lock().take()
    }

    fn record_delivery(&self) {
        self.is_delivered.store(true, Relaxed);
        self.delivered.notify_one();
    }

    /// Ends the up direction. An error of the upstream side waits for the other direction.
    async fn end_up(&self, ended: Result<(), End>) -> Result<(), End> {
        match ended {
            Err(End::Broken(Side::Upstream, error)) if !self.is_delivered.load(Relaxed) => {
                self.error.lock().get_or_insert(error);
                pending().await
            }
            ended => ended,
        }
    }

    /// Ends the down direction, after all bytes.
    fn end_down(&self) -> Result<(), End> {
        match self.take_error() {
            Some(error) => Err(End::Broken(Side::Upstream, error)),
            None => Ok(()),
        }
    }

    /// Waits for an error, and then until the client does not take what was received before it.
    async fn wait_until_undeliverable(
        &self,
        upstream: StripedLeg<'_>,
        context: &TransferContext<'_>,
    ) -> End {
        let error = upstream.wait_for_error().await;
        let kind = error.kind();
        self.error.lock().get_or_insert(error);
        // The down direction has to notice.
        yield_now().await;
        select! {
            () = self.delivered.notified() => {}
            () = context.wait_for_stalled_client() => {}
        }
        End::Broken(Side::Upstream, self.take_error().unwrap_or(kind.into()))
    }
}

/// Moves the rest of one direction, then the end.
async fn transfer_half(
    direction: Direction,
    from: StripedLeg<'_>,
    to: StripedLeg<'_>,
    progress: HalfProgress<'_>,
    broken: Option<&BrokenUpstream>,
    context: &TransferContext<'_>,
) -> Result<(), End> {
    let (taken, is_finished) = (progress.taken, progress.is_finished);
    let moved = async {
        let unframed = from.early_bytes(direction) + taken;
        let mut source = Source {
            legs: SourceLegs::new(from, unframed, &progress)?,
            broken,
        };
        finish_piece(direction, progress, to.first, context).await?;
        let mut sink = to
            .bundle
            .map(|bundle| StripeSender::new(bundle, to.early_bytes(direction) + taken));
        match &mut sink {
            // The first leg has the end already.
            _ if is_finished => {}
            Some(sink) => {
                let transfer = BundleDirection { direction, context };
                transfer.run(&mut source, sink).await?;
            }
            None => move_to_leg(direction, &mut source, to.first, context).await?,
        }
        if let Some(broken) = broken {
            broken.record_delivery();
        }
        if let Some(sink) = &mut sink {
            let finished = sink.finish_further_legs().await;
            finished.map_err(TransferError::Sink)?;
        }
        source.legs.wait_for_close().await
    };
    moved
        .await
        .map_err(|error: TransferError| error.end(direction))
}

/// Gives the first leg, which is still unframed, what was taken for it.
async fn finish_piece(
    direction: Direction,
    mut progress: HalfProgress<'_>,
    to: &Leg,
    context: &TransferContext<'_>,
) -> Result<(), TransferError> {
    if let Some(pending) = &mut progress.leftover {
        poll_fn(|cx| deliver(direction, to, context, &mut pending.buffer, cx)).await?;
        progress.pause = pending
            .pause
            .map(|until| Box::pin(sleep_until(until.into())) as _);
        progress.leftover = None;
    }
    if let Some(pause) = progress.pause {
        pause.await;
    }
    Ok(())
}

impl<'a> StripedLeg<'a> {
    /// Waits for an error of a leg, whether or not a task reads from it.
    async fn wait_for_error(self) -> io::Error {
        match self.bundle {
            Some(bundle) => bundle.wait_for_error().await,
            None => self.first.transport().wait_error().await,
        }
    }

    /// Returns the bytes of a direction that the first leg carried before the transfer began.
    fn early_bytes(self, direction: Direction) -> u64 {
        match direction {
            Direction::Up => self.early_bytes,
            Direction::Down => 0,
        }
    }

    /// Tells the sender how many legs to use, without end.
    async fn choose_legs(self, context: &TransferContext<'_>) {
        match self.bundle {
            Some(bundle) => {
                choose_legs(bundle, self.is_automatic, context.report_limited).await;
            }
            None => pending().await,
        }
    }
}

/// Source of bytes.
struct Source<'a> {
    legs: SourceLegs<'a>,
    /// Place where an error of these legs is stored.
    broken: Option<&'a BrokenUpstream>,
}

impl Source<'_> {
    /// Fills the buffer. After an error of a leg, the bytes that have arrived come first; a reset that was reported
    /// already looks like an end.
    fn fill(&mut self, buffer: &mut TransferBuffer, most: usize) -> io::Result<usize> {
        let filled = self.legs.fill(buffer, most);
        let error = match &filled {
            Ok(1..) => None,
            _ => self.broken.and_then(BrokenUpstream::take_error),
        };
        error.map_or(filled, Err)
    }

    /// Ready when [`Source::fill`] may make progress or return an error.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.legs.poll_ready(cx);
        if self.broken.is_some_and(BrokenUpstream::is_broken) {
            Poll::Ready(())
        } else {
            polled
        }
    }
}

enum SourceLegs<'a> {
    One(&'a Leg),
    Many(StripeReceiver),
}

impl<'a> SourceLegs<'a> {
    /// Returns the source behind the first `unframed` bytes.
    fn new(
        from: StripedLeg<'a>,
        unframed: u64,
        progress: &HalfProgress<'_>,
    ) -> Result<Self, TransferError> {
        let Some(bundle) = from.bundle else {
            return Ok(Self::One(from.first));
        };
        let mut receiver = StripeReceiver::new(bundle, unframed);
        if progress.is_finished {
            receiver.end_unframed().map_err(TransferError::Source)?;
        }
        Ok(Self::Many(receiver))
    }

    fn fill(&mut self, buffer: &mut TransferBuffer, most: usize) -> io::Result<usize> {
        match self {
            Self::One(leg) => leg.fill(buffer, most),
            Self::Many(receiver) => receiver.fill(buffer, most),
        }
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::One(leg) => leg.poll_read_ready(cx).map(drop),
            Self::Many(receiver) => receiver.poll_ready(cx),
        }
    }

    /// Waits until every leg is closed. The end of the stream has been read already.
    async fn wait_for_close(&mut self) -> Result<(), TransferError> {
        match self {
            Self::One(_) => Ok(()),
            Self::Many(receiver) => {
                let closed = poll_fn(|cx| receiver.poll_closed(cx)).await;
                closed.map_err(TransferError::Source)
            }
        }
    }
}

/// Returns the mode for the next bytes; `bulk` if large reads are expected.
fn buffer_mode(wanted: Mode, bulk: bool) -> pipe_pool::Mode {
    match wanted {
        Mode::Copy => pipe_pool::Mode::Copy,
        Mode::Auto if !bulk => pipe_pool::Mode::Copy,
        Mode::Auto | Mode::Splice => pipe_pool::Mode::Splice,
    }
}

/// Fills before other connections of this thread run: 16 MiB of full pieces.
const FILLS_PER_YIELD: usize = 256;

/// Moves all bytes to one leg, then the end.
async fn move_to_leg(
    direction: Direction,
    source: &mut Source<'_>,
    to: &Leg,
    context: &TransferContext<'_>,
) -> Result<(), TransferError> {
    let (mut fills, mut bulk) = (0, false);
    loop {
        let mut buffer = context.pool.lease(buffer_mode(context.mode, bulk));
        report_shortfall(context.pool);
        match source.fill(&mut buffer, context.limits.chunk(direction)) {
            Ok(0) => break,
            Ok(bytes) => {
                bulk = bytes >= BULK_BYTES;
                context.mark_client_bytes(direction);
                deliver_fully(direction, &mut buffer, to, context).await?;
                context.pace(direction, bytes).await;
                fills += 1;
                if fills % FILLS_PER_YIELD == 0 {
                    yield_now().await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(buffer);
                poll_fn(|cx| source.poll_ready(cx)).await;
            }
            Err(error) => return Err(TransferError::Source(error)),
        }
    }
    to.finish_sending().await.map_err(TransferError::Sink)
}

async fn deliver_fully(
    direction: Direction,
    buffer: &mut Lease<'_>,
    to: &Leg,
    context: &TransferContext<'_>,
) -> Result<(), TransferError> {
    let first_try = poll_fn(|cx| Poll::Ready(deliver(direction, to, context, buffer, cx)));
    if let Poll::Ready(delivered) = first_try.await {
        return delivered;
    }
    let _held = context.counters.count_buffered(buffer.buffered_len());
    let _paused = context.pauses.begin(direction, buffer.buffered_len());
    poll_fn(|cx| deliver(direction, to, context, buffer, cx)).await
}

/// One direction towards a bundle.
struct BundleDirection<'a> {
    direction: Direction,
    context: &'a TransferContext<'a>,
}

impl<'a> BundleDirection<'a> {
    /// Moves all bytes, then the end.
    async fn run(
        &self,
        source: &mut Source<'_>,
        sink: &mut StripeSender<'a>,
    ) -> Result<(), TransferError> {
        self.move_all(source, sink).await?;
        let on_taken = |bytes| self.context.count_delivered(self.direction, bytes);
        sink.finish(on_taken).await.map_err(TransferError::Sink)
    }

    async fn move_all(
        &self,
        source: &mut Source<'_>,
        sink: &mut StripeSender<'a>,
    ) -> Result<(), TransferError> {
        let (mut fills, mut bulk) = (0, false);
        loop {
            self.write(sink)?;
            match self.read_piece(source, sink, bulk)? {
                FetchOutcome::End => return Ok(()),
                FetchOutcome::Piece(bytes) => {
                    bulk = bytes >= BULK_BYTES;
                    self.context.pace(self.direction, bytes).await;
                    fills += 1;
                    if fills % FILLS_PER_YIELD == 0 {
                        yield_now().await;
                    }
                }
                wait => self.wait(wait, source, sink).await,
            }
        }
    }

    /// Takes a piece from the source if a leg would take it.
    fn read_piece(
        &self,
        source: &mut Source<'_>,
        sink: &mut StripeSender<'a>,
        bulk: bool,
    ) -> Result<FetchOutcome, TransferError> {
        let Some((leg, most)) = sink.free().map_err(TransferError::Sink)? else {
            return Ok(FetchOutcome::SinkBlocked);
        };
        let mut buffer = self
            .context
            .pool
            .lease(buffer_mode(self.context.mode, bulk));
        report_shortfall(self.context.pool);
        let most = most.min(self.context.limits.chunk(self.direction));
        let bytes = match source.fill(&mut buffer, most) {
            Ok(0) => return Ok(FetchOutcome::End),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(FetchOutcome::SourceEmpty);
            }
            Err(error) => return Err(TransferError::Source(error)),
        };
        self.context.mark_client_bytes(self.direction);
        let _held = Some(self.context.counters.count_buffered(bytes));
        sink.begin(leg, OutgoingPiece { buffer, _held });
        self.write(sink)?;
        Ok(FetchOutcome::Piece(bytes))
    }

    fn write(&self, sink: &mut StripeSender<'a>) -> Result<(), TransferError> {
        let pushed = sink.push().map_err(TransferError::Sink)?;
        self.context.count_delivered(self.direction, pushed);
        Ok(())
    }

    async fn wait(&self, reason: FetchOutcome, source: &Source<'_>, sink: &StripeSender<'a>) {
        let blocked = matches!(reason, FetchOutcome::SinkBlocked);
        let _paused = blocked.then(|| self.context.pauses.begin(self.direction, 0));
        poll_fn(|cx| {
            let mut ready = sink.poll_ready(blocked, cx).is_ready();
            if let FetchOutcome::SourceEmpty = reason {
                ready |= source.poll_ready(cx).is_ready();
            }
            if ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Result of an attempt to take a piece from the source.
enum FetchOutcome {
    Piece(usize),
    /// The source has no bytes now.
    SourceEmpty,
    /// No leg would take a piece.
    SinkBlocked,
    End,
}

impl TransferContext<'_> {
    fn mark_client_bytes(&self, direction: Direction) {
        if direction == Direction::Up {
            self.client_bytes_taken.store(true, Relaxed);
        }
    }

    /// Waits as long as the rate limits require for these bytes.
    async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self.limits.spend(direction, bytes, Instant::now) {
            Box::pin(sleep_until(until.into())).await;
        }
    }
}
