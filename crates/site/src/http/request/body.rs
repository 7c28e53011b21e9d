// SPDX-License-Identifier: MIT OR Apache-2.0
//! The body of a request, of which something may be left when the request has its answer. If that came later, it would be
//! taken for the next request: so what little is left is read, or the connection ends with the answer.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
    header::EXPECT,
};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// Bytes of a rest that are read, at most, and how long one waits for them.
const REST_LEN_MAX: usize = 64 << 10;
const REST_TIME: Duration = Duration::from_secs(1);

/// A request's body.
#[derive(Debug)]
pub(crate) struct Received(Arc<Mutex<Incoming>>);

/// What a request has not read of its body.
#[derive(Debug)]
pub(crate) struct Rest {
    body: Received,
    /// The client sends nothing of the body before it is read (RFC 9110 §10.1.1).
    is_awaited: bool,
}

impl Received {
    /// The same request, and what it will leave of its body.
    pub(crate) fn of(request: Request<Incoming>) -> (Request<Self>, Rest) {
        let is_awaited = request.headers().contains_key(EXPECT);
        let request = request.map(|body| Self(Arc::new(Mutex::new(body))));
        let body = Self(request.body().0.clone());
        (request, Rest { body, is_awaited })
    }
}

impl Rest {
    /// Reads it; whether there is nothing left then.
    pub(crate) async fn read(self) -> bool {
        let left = self.body.size_hint().lower();
        if self.body.is_end_stream() {
            return true;
        }
        if self.is_awaited || left > REST_LEN_MAX as u64 {
            return false;
        }
        let rest = Limited::new(self.body, REST_LEN_MAX);
        timeout(REST_TIME, rest.collect())
            .await
            .is_ok_and(|read| read.is_ok())
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}
