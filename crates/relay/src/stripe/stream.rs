// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first leg of a group as an async stream, for a library that reads and writes it. Once a further leg has joined,
//! the same stream goes over all of them.

use crate::{
    faults::limited_leg::ReportLimited,
    leg::stream::LegStream,
    stripe::{
        bundle::Bundle,
        choice::choose_legs,
        outgoing_group::OutgoingGroup,
        receiver::StripeReceiver,
        sender::{OutgoingPiece, StripeSender},
    },
};
use longhaul_linux::{
    pipe_pool::Lease,
    transfer_buffer::{Buffer, TransferBuffer},
};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
    try_join,
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time that the legs of a connection have to end together. After it they are reset.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A group, and what the stream needs of its user.
pub(crate) struct JoinableGroup {
    pub(crate) group: Arc<OutgoingGroup>,
    /// Lets further legs join, without end.
    pub(crate) joins: BoxFuture<()>,
    pub(crate) report_limited: Arc<ReportLimited<'static>>,
}

/// A connection to the other relay, over one leg or several.
pub(crate) struct GroupStream {
    first: LegStream,
    /// Boxed: a connection without a group does not need the space.
    joinable: Option<Box<Joinable>>,
}

struct Joinable {
    group: JoinableGroup,
    /// Bytes that the first leg carried by itself.
    read: u64,
    written: u64,
    state: State,
}

enum State {
    OneLeg,
    /// The only leg is being shut down: no other one may join now.
    OneLegEnding,
    Striped(Box<StripedStream>),
    Closing(BoxFuture<io::Result<()>>),
    Closed,
}

impl GroupStream {
    /// Returns the stream of `first`, over which nothing has gone but the request and its answer.
    pub(crate) fn new(first: LegStream, group: Option<JoinableGroup>) -> Self {
        let joinable = |group| {
            let state = State::OneLeg;
            Box::new(Joinable {
                group,
                read: 0,
                written: 0,
                state,
            })
        };
        Self {
            first,
            joinable: group.map(joinable),
        }
    }

    /// Lets further legs join, and returns the stream over the present ones.
    fn legs(&mut self, cx: &mut Context<'_>) -> Legs<'_> {
        let Some(joinable) = &mut self.joinable else {
            return Legs::One(&mut self.first);
        };
        joinable.let_legs_join(cx);
        match &mut joinable.state {
            State::OneLeg | State::OneLegEnding => Legs::One(&mut self.first),
            State::Striped(striped) => Legs::Many(striped),
            State::Closing(_) | State::Closed => Legs::Closed,
        }
    }

    fn count(&mut self, read: usize, written: usize) {
        if let Some(joinable) = &mut self.joinable {
            joinable.read += read as u64;
            joinable.written += written as u64;
            joinable.group.group.growth.count(read + written);
        }
    }
}

impl Joinable {
    fn let_legs_join(&mut self, cx: &mut Context<'_>) {
        let _ = self.group.joins.as_mut().poll(cx);
        if let (State::OneLeg, Some(bundle)) = (&self.state, self.group.group.bundle()) {
            let striped = StripedStream::new(bundle, self);
            self.state = State::Striped(Box::new(striped));
        }
    }
}

impl AsyncRead for GroupStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.legs(cx) {
            Legs::One(first) => ready!(Pin::new(first).poll_read(cx, buffer))?,
            Legs::Many(striped) => return striped.poll_read(cx, buffer),
            Legs::Closed => {}
        }
        self.count(buffer.filled().len() - before, 0);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GroupStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match self.legs(cx) {
            Legs::One(first) => ready!(Pin::new(first).poll_write_vectored(cx, slices))?,
            Legs::Many(striped) => return striped.poll_write(cx, slices),
            Legs::Closed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        self.count(0, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.legs(cx) {
            Legs::One(first) => Pin::new(first).poll_flush(cx),
            Legs::Many(striped) => striped.poll_flush(cx),
            Legs::Closed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_one = matches!(self.legs(cx), Legs::One(_));
        match &mut self.joinable {
            Some(joinable) if is_one => joinable.state = State::OneLegEnding,
            Some(joinable) => return joinable.poll_close(cx),
            None => {}
        }
        Pin::new(&mut self.first).poll_shutdown(cx)
    }
}

/// Legs that the stream goes over.
enum Legs<'a> {
    One(&'a mut LegStream),
    Many(&'a mut StripedStream),
    Closed,
}

impl Joinable {
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, State::Closed) {
                State::Striped(striped) => State::Closing(Box::pin(striped.close())),
                State::Closing(mut close) => match close.as_mut().poll(cx) {
                    Poll::Ready(closed) => return Poll::Ready(closed),
                    Poll::Pending => {
                        self.state = State::Closing(close);
                        return Poll::Pending;
                    }
                },
                State::OneLeg | State::OneLegEnding | State::Closed => {
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// The connection, once further legs have joined.
struct StripedStream {
    receiver: StripeReceiver,
    sender: StripeSender<'static>,
    /// Ends with the error of a leg that carries bytes, whether or not it is its turn.
    watch: BoxFuture<io::Error>,
    error: Option<io::Error>,
    /// Chooses the legs to send over, without end.
    choice: BoxFuture<()>,
}

impl StripedStream {
    fn new(bundle: &Arc<Bundle>, joinable: &Joinable) -> Self {
        let group = &joinable.group;
        let (watched, chosen) = (bundle.clone(), bundle.clone());
        let (is_automatic, report) = (group.group.is_automatic(), group.report_limited.clone());
        Self {
            receiver: StripeReceiver::new(bundle, joinable.read),
            sender: StripeSender::new(bundle, joinable.written),
            watch: Box::pin(async move { watched.wait_for_error().await }),
            error: None,
            choice: Box::pin(async move { choose_legs(&chosen, is_automatic, &*report).await }),
        }
    }

    /// Writes what is due, confirmations too. After an error of a leg, this is the error.
    fn poll_legs(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.error.is_none()
            && let Poll::Ready(error) = self.watch.as_mut().poll(cx)
        {
            self.error = Some(error);
        }
        if let Some(error) = &self.error {
            return Err(copy(error));
        }
        let _ = self.choice.as_mut().poll(cx);
        self.sender.push().map(drop)
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // Bytes that have arrived come before the error.
            let written = self.poll_legs(cx);
            match self.receiver.try_read(buffer.initialize_unfilled()) {
                Ok(read) if read > 0 => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                // A reset that was reported already looks like an end.
                Ok(_) => return Poll::Ready(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => written?,
                Err(error) => return Poll::Ready(Err(error)),
            }
            // What was read may ask for a confirmation.
            self.sender.push()?;
            let sent = self.sender.poll_ready(false, cx);
            let received = self.receiver.poll_ready(cx);
            if sent.is_pending() && received.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            self.poll_legs(cx)?;
            if let Some((leg, most)) = self.sender.free()? {
                let piece = piece(slices, most);
                let len = piece.buffer.buffered_len();
                if len > 0 {
                    self.sender.begin(leg, piece);
                    self.sender.push()?;
                }
                return Poll::Ready(Ok(len));
            }
            ready!(self.sender.poll_ready(true, cx));
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_legs(cx)?;
        while self.sender.is_busy() {
            ready!(self.sender.poll_ready(false, cx));
            self.poll_legs(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the connection after its last message. The other relay has nothing left to send but its end.
    async fn close(self: Box<Self>) -> io::Result<()> {
        let Self {
            mut receiver,
            mut sender,
            ..
        } = *self;
        let sending = async {
            sender.finish(|_| {}).await?;
            sender.finish_further_legs().await
        };
        let ended = timeout(CLOSE_TIMEOUT, async {
            try_join!(sending, receiver.wait_for_end())
        });
        match ended.await {
            Ok(ended) => ended.map(drop),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Returns the error once more.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

/// Copies up to `most` bytes into a piece.
fn piece(slices: &[IoSlice<'_>], most: usize) -> OutgoingPiece<'static> {
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    let len = total.min(most).min(longhaul_protocol::stripe::PIECE_LEN);
    let mut buffer = Buffer::with_capacity(len);
    buffer.copy_from(slices);
    OutgoingPiece {
        buffer: Lease::unpooled(TransferBuffer::Copy(buffer)),
        _held: None,
    }
}
