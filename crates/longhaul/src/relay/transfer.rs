// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two legs become one connection: bytes both ways, each direction with an end of its own.

use super::{
    counters::{Counters, Direction, Traffic},
    failure::Failure,
    leg::Leg,
    rate::Limits,
    route::Far,
    stream::write_all,
    stripe::Seat,
};
use host::{
    conduit::Conduit,
    pipe_pool::{Mode, Pool, Shortfall},
    socket::pending_error,
};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::{
    io::Interest, net::TcpStream, select, sync::Notify, task::yield_now, time::sleep_until,
};

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both directions by FIN, everything delivered.
    Finished,
    /// A leg ended abnormally.
    Broken(Side, io::Error),
    /// There never was a connection to the destination.
    Failed(Failure),
    /// The relay stopped first.
    Cut,
    /// It is a further leg of another client's connection from now on.
    Joined(Seat),
}

/// One of the two legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Towards the client.
    Near,
    /// Towards the destination.
    Far,
}

/// What a transfer works with besides its two legs.
pub(crate) struct Means<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) counters: &'a Counters,
    pub(crate) traffic: &'a Traffic,
    /// What may pass in which time.
    pub(crate) limits: &'a Limits,
    /// How bytes move, if a profile says.
    pub(crate) mode: Option<Mode>,
    /// Set when the first byte is taken from the client.
    pub(crate) client_heard: &'a AtomicBool,
}

/// Relays until both directions have ended, or one leg breaks. `on_success` is what the client is
/// told once the destination is reached. The caller resets both legs unless the end is
/// [`End::Finished`] or [`End::Failed`].
///
/// The client's bytes leave at once, without waiting for a peer's answer (RFC 8803 §3, 0-RTT).
pub(crate) async fn run(near: &Leg, far: &Far, on_success: &[u8], means: &Means<'_>) -> End {
    let answered = Notify::new();
    // Pinned where they are made: moved once, they would take their room twice, in each of the
    // thousands of connections that are idle.
    let up = pin!(async {
        let outcome = direction(Direction::Up, near, &far.stream, means).await;
        if let Err(End::Broken(Side::Far, _)) = outcome {
            // A peer that refuses closes, and may do so before it has read what was sent to it:
            // its answer says more than the error.
            answered.notified().await;
        }
        outcome
    });
    let down = pin!(async {
        far.answer().await.map_err(End::Failed)?;
        answered.notify_one();
        write_all(near, on_success)
            .await
            .map_err(|e| End::Broken(Side::Near, e))?;
        direction(Direction::Down, &far.stream, near, means).await
    });
    match both(up, down, near, &far.stream).await {
        Ok(()) => End::Finished,
        Err(end) => end,
    }
}

/// Waits for both directions. The leg whose direction has ended is no longer read from, so that a
/// RST on it would go unnoticed while the other direction is idle: it is watched for errors.
async fn both(
    mut up: Pin<&mut impl Future<Output = Result<(), End>>>,
    mut down: Pin<&mut impl Future<Output = Result<(), End>>>,
    near: &Leg,
    far: &Leg,
) -> Result<(), End> {
    select! {
        ended = &mut up => {
            ended?;
            select! { ended = &mut down => ended, error = broken(near.socket()) => Err(End::Broken(Side::Near, error)) }
        }
        ended = &mut down => {
            ended?;
            select! { ended = &mut up => ended, error = broken(far.socket()) => Err(End::Broken(Side::Far, error)) }
        }
    }
}

/// Returns when the socket has an error.
pub(super) async fn broken(stream: &TcpStream) -> io::Error {
    match stream
        .ready(Interest::ERROR)
        .await
        .and_then(|_| pending_error(stream))
    {
        Err(error) | Ok(Some(error)) => error,
        // Another call has taken the error off the socket.
        Ok(None) => io::ErrorKind::ConnectionReset.into(),
    }
}

/// Moves everything one way, then passes the FIN on.
async fn direction(
    direction: Direction,
    from: &Leg,
    to: &Leg,
    means: &Means<'_>,
) -> Result<(), End> {
    let pumped = pump(direction, from, to, means).await;
    pumped.map_err(|broken| broken.end(direction))?;
    let finished = to.finish_sending().await;
    finished.map_err(|error| Broken::Sink(error).end(direction))
}

pub(super) enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

impl Broken {
    pub(super) fn end(self, direction: Direction) -> End {
        let (source, sink) = sides(direction);
        match self {
            Self::Source(error) => End::Broken(source, error),
            Self::Sink(error) => End::Broken(sink, error),
        }
    }
}

/// Where the bytes come from, and where they go.
fn sides(direction: Direction) -> (Side, Side) {
    match direction {
        Direction::Up => (Side::Near, Side::Far),
        Direction::Down => (Side::Far, Side::Near),
    }
}

/// Fills of one conduit before other connections of this thread have their turn: 16 MiB with 1 MiB
/// pipes.
const FILLS_PER_TURN: usize = 16;

/// Moves bytes until the source's FIN. All of them are delivered to the sink's socket then.
async fn pump(direction: Direction, from: &Leg, to: &Leg, means: &Means<'_>) -> Result<(), Broken> {
    loop {
        readable(from).await.map_err(Broken::Source)?;
        match turn(direction, from, to, means).await? {
            Turn::Dry => {}
            Turn::UsedUp => yield_now().await,
            Turn::TooFast(until) => Box::pin(sleep_until(until.into())).await,
            Turn::EndOfStream => return Ok(()),
        }
    }
}

/// How a turn ended.
enum Turn {
    /// The source has nothing now.
    Dry,
    /// Others have waited long enough.
    UsedUp,
    /// A rate limit wants a pause.
    TooFast(Instant),
    EndOfStream,
}

/// Takes a conduit, moves what is there, and gives the conduit back.
async fn turn(
    direction: Direction,
    from: &Leg,
    to: &Leg,
    means: &Means<'_>,
) -> Result<Turn, Broken> {
    let mut conduit = means.pool.lease(means.mode);
    report_shortfall(means.pool);
    let chunk = means.limits.chunk(direction);
    for _ in 0..FILLS_PER_TURN {
        match from.fill(&mut conduit, chunk) {
            Ok(0) => return Ok(Turn::EndOfStream),
            Ok(bytes) => {
                if direction == Direction::Up {
                    means.client_heard.store(true, Relaxed);
                }
                deliver(direction, &mut conduit, from, to, means).await?;
                if let Some(until) = means.limits.spend(direction, bytes, Instant::now()) {
                    return Ok(Turn::TooFast(until));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Dry),
            Err(error) => return Err(Broken::Source(error)),
        }
    }
    Ok(Turn::UsedUp)
}

/// Waits until the sink takes more. Meanwhile nothing is read, so that a RST of the source would go
/// unnoticed: it is watched for errors, and what is held then is lost as what is queued in the
/// sink's socket is.
async fn blocked(from: &Leg, to: &Leg) -> Result<(), Broken> {
    select! {
        biased;
        outcome = writable(to) => outcome.map_err(Broken::Sink),
        error = broken(from.socket()) => Err(Broken::Source(error)),
    }
}

/// Empties the conduit into the sink.
async fn deliver(
    direction: Direction,
    conduit: &mut Conduit,
    from: &Leg,
    to: &Leg,
    means: &Means<'_>,
) -> Result<(), Broken> {
    let _held = means.counters.hold(conduit.held());
    while conduit.held() > 0 {
        match to.drain(conduit) {
            Ok(delivered) => {
                means.counters.traffic.add(direction, delivered);
                means.traffic.add(direction, delivered);
            }
            // In a box: an idle connection has no need of the room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Box::pin(blocked(from, to)).await?;
            }
            Err(error) => return Err(Broken::Sink(error)),
        }
    }
    while !to.try_flush().map_err(Broken::Sink)? {
        Box::pin(blocked(from, to)).await?;
    }
    Ok(())
}

/// As `Channel::readable`, in a tenth of the room: each direction of a socket has one task that
/// waits for it.
async fn readable(stream: &Leg) -> io::Result<()> {
    poll_fn(|context| stream.poll_read_ready(context)).await
}

/// As [`readable`], to write.
async fn writable(stream: &Leg) -> io::Result<()> {
    poll_fn(|context| stream.poll_write_ready(context)).await
}

/// Tells the operator once that pipes are not what was asked for.
pub(super) fn report_shortfall(pool: &Pool) {
    static TOLD: Once = Once::new();
    if let Some(shortfall) = pool.take_shortfall() {
        TOLD.call_once(|| match shortfall {
            Shortfall::SmallPipes(bytes) => eprintln!(
                "longhaul relay: the kernel grants pipes of {} KiB only, which costs CPU: raise \
                 fs.pipe-max-size and fs.pipe-user-pages-soft",
                bytes / 1024
            ),
            Shortfall::NoPipe(error) => {
                eprintln!("longhaul relay: no pipe ({error}): bytes are copied instead");
            }
        });
    }
}
