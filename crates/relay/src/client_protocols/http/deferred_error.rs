// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response body whose error waits until all data before it has been written. hyper drops the data that it has buffered
//! when a body fails, and the client would never see it.

use crate::client_protocols::http::exchange::Exchange;
use hyper::body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Response body with a deferred error.
pub(crate) struct DeferredError<B: Body> {
    body: B,
    error: Option<B::Error>,
    exchange: Arc<Exchange>,
}

impl<B: Body> DeferredError<B> {
    pub(super) fn new(body: B, exchange: &Arc<Exchange>) -> Self {
        Self {
            body,
            error: None,
            exchange: exchange.clone(),
        }
    }
}

impl<B> Body for DeferredError<B>
where
    B: Body + Unpin,
    B::Error: Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if self.error.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Err(error)) => self.error = Some(error),
                frame => return Poll::Ready(frame),
            }
            self.exchange.require_flush();
        }
        ready!(self.exchange.poll_flushed(cx));
        Poll::Ready(self.error.take().map(Err))
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
