// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adapter from an upstream connection to an async stream, which reads the peer's reply first.

use crate::{
    client_protocols::http::{
        silence::Progress,
        trailers::{END, First, before_end},
    },
    faults::fault::Fault,
    leg::stream::Shared,
    route::far::Far,
};
use parking_lot::Mutex;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Answer = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// Upstream connection as an async stream: the reply of the peer on the path, if there is one, is
/// read before the first byte of HTTP. Writes do not wait for it.
pub(crate) struct Answered {
    stream: Shared,
    answer: Option<Answer>,
    /// Receives the fault if the peer refuses.
    refused: Arc<OnceLock<Fault>>,
    /// Progress of the current request.
    current: Arc<Mutex<Arc<Progress>>>,
    first: First,
}

impl Answered {
    pub(crate) fn new(
        far: Arc<Far>,
        refused: Arc<OnceLock<Fault>>,
        current: Arc<Mutex<Arc<Progress>>>,
    ) -> Self {
        let stream = Shared {
            stream: far.stream.clone(),
            on_bytes: Box::new(|_, _| {}),
        };
        Self {
            stream,
            answer: Some(Box::pin(async move { far.answer().await })),
            refused,
            current,
            first: First::default(),
        }
    }
}

impl Answered {
    /// Ready once the reply has arrived; a refusal is an error.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(outcome.map_err(|fault| {
            let _ = self.refused.set(fault.clone());
            io::Error::other(fault)
        }))
    }
}

impl AsyncRead for Answered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Answered {
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
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { first, stream, .. } = &mut *self;
        ready!(first.poll_write(cx, stream))?;
        let progress = self.current.lock().clone();
        let mut trailers = progress.trailers.lock();
        let slices = match *trailers {
            Some(_) => before_end(slices),
            None => Some(slices),
        };
        let Some(slices) = slices else {
            self.first = First(trailers.take().unwrap_or_default().into());
            return Poll::Ready(Ok(END.len()));
        };
        match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
            // A refusing peer closes the connection: its reply says more than the error.
            Poll::Ready(Err(error)) => {
                ready!(self.poll_answer(cx))?;
                Poll::Ready(Err(error))
            }
            polled => polled,
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { first, stream, .. } = &mut *self;
        ready!(first.poll_write(cx, stream))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
