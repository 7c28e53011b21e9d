// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer of a connection with a bundle on at least one side, as `transfer::run` is for two legs.

use crate::{
    config::settings::Mode,
    peers::pool::PeerPools,
    route::upstream_leg::UpstreamLeg,
    stripe::{
        bundle::Bundle,
        incoming_groups::GroupRegistration,
        outgoing_group::{OutgoingGroup, ReplayBuffer},
        receiver::StripeReceiver,
        sender::{OutgoingPiece, StripeSender},
    },
    transfer::{BULK_BYTES, End, Side, TransferContext, TransferError, report_shortfall},
};
use longhaul_admission::rate_limits::Direction;
use longhaul_linux::{pipe_pool, transfer_buffer::TransferBuffer};
use longhaul_protocol::stripe::PIECE_LEN;
use longhaul_transport::{channel::write_all, leg::Leg};
use std::{
    future::{pending, poll_fn},
    io,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Instant,
};
use tokio::{
    select,
    sync::{Mutex as AsyncMutex, MutexGuard, Notify, watch},
    task::yield_now,
    time::sleep_until,
};

/// Both sides of a connection.
pub(crate) struct StripedLegs<'a> {
    pub(crate) downstream: &'a Leg,
    /// Group of the client's leg, if the client is a relay that requested several legs.
    pub(crate) incoming_group: Option<&'a GroupRegistration>,
    pub(crate) upstream: &'a UpstreamLeg,
    /// Pooled connections for joining legs.
    pub(crate) peer_pools: &'a Arc<PeerPools>,
}

/// One side: a leg or a bundle.
#[derive(Clone, Copy)]
enum LegOrBundle<'a> {
    One(&'a Leg),
    Many(&'a Bundle, &'a ReceiverLock),
}

type ReceiverLock = AsyncMutex<StripeReceiver>;

impl StripedLegs<'_> {
    fn downstream(&self) -> LegOrBundle<'_> {
        match self.incoming_group {
            Some(registration) => LegOrBundle::Many(&registration.bundle, &registration.receiver),
            None => LegOrBundle::One(self.downstream),
        }
    }

    fn upstream(&self) -> LegOrBundle<'_> {
        match self.outgoing_group() {
            Some(group) => LegOrBundle::Many(&group.bundle, &group.receiver),
            None => LegOrBundle::One(&self.upstream.leg),
        }
    }

    fn outgoing_group(&self) -> Option<&OutgoingGroup> {
        self.upstream.group.as_deref()
    }
}

/// Relays until both directions have ended, or a leg breaks. `on_success` is the answer to the
/// client, on its first leg, once the destination is reached.
pub(crate) async fn run(
    legs: &StripedLegs<'_>,
    on_success: &[u8],
    context: &TransferContext<'_>,
) -> End {
    let answered = Notify::new();
    let (accept, accepted) = watch::channel(false);
    let up = pin!(async {
        let outcome = transfer_up(legs, context).await;
        if let Err(End::Broken(Side::Upstream, _)) = outcome {
            // The peer's answer says more than the write error.
            answered.notified().await;
        }
        outcome
    });
    let down = pin!(async {
        legs.upstream.answer().await.map_err(End::Failed)?;
        answered.notify_one();
        let _ = accept.send(true);
        if let Some(group) = legs.outgoing_group() {
            group.replay.accept();
        }
        let sent = write_all(legs.downstream, on_success).await;
        sent.map_err(|error| End::Broken(Side::Downstream, error))?;
        transfer_down(legs, context).await
    });
    let outcome = select! {
        biased;
        ended = async { tokio::try_join!(up, down).map(drop) } => ended,
        end = first_error(legs, accepted.clone()) => Err(end),
        () = accept_and_open_joins(legs, accepted) => unreachable!("joining has no end"),
    };
    match outcome {
        Ok(()) => End::Finished,
        Err(end) => end,
    }
}

/// Adds joining legs on both sides, without end.
async fn accept_and_open_joins(legs: &StripedLegs<'_>, accepted: watch::Receiver<bool>) {
    let downstream = async {
        match legs.incoming_group {
            Some(registration) => registration.accept_joins().await,
            None => pending().await,
        }
    };
    let upstream = async {
        match legs.outgoing_group() {
            Some(group) => group.join_legs(legs.peer_pools, accepted).await,
            None => pending().await,
        }
    };
    tokio::join!(downstream, upstream);
}

/// Waits for an error of a leg, whether or not a task reads from it. Errors of the upstream side count
/// from the peer's answer on, since a refusal may come with one.
async fn first_error(legs: &StripedLegs<'_>, mut accepted: watch::Receiver<bool>) -> End {
    let upstream = async {
        if accepted.wait_for(|yes| *yes).await.is_err() {
            return pending().await;
        }
        legs.upstream().wait_for_error().await
    };
    select! {
        error = legs.downstream().wait_for_error() => End::Broken(Side::Downstream, error),
        error = upstream => End::Broken(Side::Upstream, error),
    }
}

async fn transfer_up(legs: &StripedLegs<'_>, context: &TransferContext<'_>) -> Result<(), End> {
    let mut source = legs.downstream().source().await;
    let outcome = match legs.outgoing_group() {
        Some(group) => {
            let transfer = BundleDirection {
                direction: Direction::Up,
                context,
                replay: Some(&group.replay),
            };
            let mut sink = StripeSender::new(&group.bundle, group.early_bytes_sent());
            transfer.run(&mut source, &mut sink).await
        }
        None => move_to_leg(Direction::Up, &mut source, &legs.upstream.leg, context).await,
    };
    outcome.map_err(|error| error.end(Direction::Up))?;
    source.wait_for_close().await;
    Ok(())
}

async fn transfer_down(legs: &StripedLegs<'_>, context: &TransferContext<'_>) -> Result<(), End> {
    let mut source = legs.upstream().source().await;
    let outcome = match legs.incoming_group {
        Some(registration) => {
            let transfer = BundleDirection {
                direction: Direction::Down,
                context,
                replay: None,
            };
            let mut sink = StripeSender::new(&registration.bundle, 0);
            transfer.run(&mut source, &mut sink).await
        }
        None => move_to_leg(Direction::Down, &mut source, legs.downstream, context).await,
    };
    outcome.map_err(|error| error.end(Direction::Down))?;
    source.wait_for_close().await;
    Ok(())
}

impl<'a> LegOrBundle<'a> {
    async fn source(self) -> Source<'a> {
        match self {
            Self::One(leg) => Source::One(leg),
            Self::Many(bundle, receiver) => Source::Many(bundle, receiver.lock().await),
        }
    }

    async fn wait_for_error(self) -> io::Error {
        match self {
            Self::One(leg) => leg.transport().wait_error().await,
            Self::Many(bundle, _) => bundle.wait_for_error().await,
        }
    }
}

/// Source of bytes.
enum Source<'a> {
    One(&'a Leg),
    Many(&'a Bundle, MutexGuard<'a, StripeReceiver>),
}

impl Source<'_> {
    fn fill(&mut self, buffer: &mut TransferBuffer, most: usize) -> io::Result<usize> {
        match self {
            Self::One(leg) => leg.fill(buffer, most),
            Self::Many(bundle, receiver) => receiver.fill(bundle, buffer, most),
        }
    }

    /// Ready when [`Source::fill`] may make progress or return an error.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::One(leg) => leg.poll_read_ready(cx).map(drop),
            Self::Many(bundle, receiver) => receiver.poll_ready(bundle, cx),
        }
    }

    /// Waits until every leg is closed. The end of the stream has been read already.
    async fn wait_for_close(&mut self) {
        if let Self::Many(_, receiver) = self {
            poll_fn(|cx| receiver.poll_closed(cx)).await;
        }
    }

    /// Returns the mode for the next bytes; `bulk` if large reads are expected.
    fn mode(&self, wanted: Mode, bulk: bool) -> pipe_pool::Mode {
        match (self, wanted) {
            (Self::Many(_, receiver), _) if receiver.wants_copy() => pipe_pool::Mode::Copy,
            (_, Mode::Copy) => pipe_pool::Mode::Copy,
            (_, Mode::Auto) if !bulk => pipe_pool::Mode::Copy,
            _ => pipe_pool::Mode::Splice,
        }
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
        let mut buffer = context.pool.lease(source.mode(context.mode, bulk));
        report_shortfall(context.pool);
        match source.fill(&mut buffer, context.limits.chunk(direction)) {
            Ok(0) => break,
            Ok(bytes) => {
                bulk = bytes >= BULK_BYTES;
                context.mark_client_bytes(direction);
                deliver(direction, &mut buffer, to, context).await?;
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

async fn deliver(
    direction: Direction,
    buffer: &mut TransferBuffer,
    to: &Leg,
    context: &TransferContext<'_>,
) -> Result<(), TransferError> {
    let _held = context.counters.count_buffered(buffer.buffered_len());
    while buffer.buffered_len() > 0 {
        match to.drain(buffer) {
            Ok(bytes) => context.count_delivered(direction, bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _paused = context.pauses.begin(direction, buffer.buffered_len());
                let writable = poll_fn(|cx| to.poll_write_ready(cx)).await;
                writable.map_err(TransferError::Sink)?;
            }
            Err(error) => return Err(TransferError::Sink(error)),
        }
    }
    to.flush().await.map_err(TransferError::Sink)
}

/// One direction towards a bundle.
struct BundleDirection<'a> {
    direction: Direction,
    context: &'a TransferContext<'a>,
    /// Copy of the bytes sent before the peer's answer.
    replay: Option<&'a ReplayBuffer>,
}

impl<'a> BundleDirection<'a> {
    /// Moves all bytes, then the end.
    async fn run(
        &self,
        source: &mut Source<'_>,
        sink: &mut StripeSender<'a>,
    ) -> Result<(), TransferError> {
        let (mut fills, mut bulk) = (0, false);
        loop {
            self.write(sink)?;
            match self.read_piece(source, sink, bulk)? {
                FetchOutcome::End => break,
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
        self.flush(sink).await?;
        sink.end();
        self.flush(sink).await?;
        let finished = poll_fn(|cx| sink.poll_finish(cx)).await;
        finished.map_err(TransferError::Sink)
    }

    /// Takes a piece from the source if a leg would take it.
    fn read_piece(
        &self,
        source: &mut Source<'_>,
        sink: &mut StripeSender<'a>,
        bulk: bool,
    ) -> Result<FetchOutcome, TransferError> {
        let room = self.replay.and_then(ReplayBuffer::bytes_left);
        if room == Some(0) {
            return Ok(FetchOutcome::AwaitingAnswer);
        }
        let Some(leg) = sink.free().map_err(TransferError::Sink)? else {
            return Ok(FetchOutcome::SinkBlocked);
        };
        let mode = match room {
            Some(_) => pipe_pool::Mode::Copy,
            None => source.mode(self.context.mode, bulk),
        };
        let mut buffer = self.context.pool.lease(mode);
        report_shortfall(self.context.pool);
        let most = room.unwrap_or(PIECE_LEN).min(PIECE_LEN);
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
        if let (Some(_), Some(replay)) = (room, self.replay) {
            replay.append(buffer.buffered());
        }
        let _held = self.context.counters.count_buffered(bytes);
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
            let idle = matches!(reason, FetchOutcome::SinkBlocked);
            let mut ready = sink.poll_ready(idle, cx).is_ready();
            if let FetchOutcome::SourceEmpty = reason {
                ready |= source.poll_ready(cx).is_ready();
            }
            if let (FetchOutcome::AwaitingAnswer, Some(replay)) = (&reason, self.replay) {
                ready |= replay.poll_accepted(cx).is_ready();
            }
            match ready {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Waits until every leg has taken its piece.
    async fn flush(&self, sink: &mut StripeSender<'a>) -> Result<(), TransferError> {
        self.write(sink)?;
        while sink.is_busy() {
            poll_fn(|cx| sink.poll_ready(false, cx)).await;
            self.write(sink)?;
        }
        Ok(())
    }
}

/// Result of an attempt to take a piece from the source.
enum FetchOutcome {
    Piece(usize),
    /// The source has no bytes now.
    SourceEmpty,
    /// No leg would take a piece.
    SinkBlocked,
    /// No more bytes may be sent before the peer's answer.
    AwaitingAnswer,
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
