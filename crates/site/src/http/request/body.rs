// SPDX-License-Identifier: MIT OR Apache-2.0
//! Body of a request. A response may be sent before all of the body is read, and the remainder would then be parsed
//! as the next request. A short remainder is therefore read and dropped; otherwise the connection is closed.

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

/// Most bytes of a remainder that are read, and the time to wait for them.
const UNREAD_LEN_MAX: usize = 64 << 10;
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody(Arc<Mutex<Incoming>>);

/// Unread remainder of a body.
#[derive(Debug)]
pub(crate) struct UnreadBody {
    body: RequestBody,
    /// The client sends the body only after a 100 response (RFC 9110 §10.1.1).
    expects_continue: bool,
}

impl RequestBody {
    /// Wraps the body of a request. Returns the request and a handle for the unread remainder.
    pub(crate) fn of(request: Request<Incoming>) -> (Request<Self>, UnreadBody) {
        let expects_continue = request.headers().contains_key(EXPECT);
        let request = request.map(|body| Self(Arc::new(Mutex::new(body))));
        let body = Self(request.body().0.clone());
        (
            request,
            UnreadBody {
                body,
                expects_continue,
            },
        )
    }
}

impl UnreadBody {
    /// Reads and drops the remainder. Returns whether nothing is left.
    pub(crate) async fn read(self) -> bool {
        let left = self.body.size_hint().lower();
        if self.body.is_end_stream() {
            return true;
        }
        if self.expects_continue || left > UNREAD_LEN_MAX as u64 {
            return false;
        }
        let rest = Limited::new(self.body, UNREAD_LEN_MAX);
        timeout(UNREAD_TIMEOUT, rest.collect())
            .await
            .is_ok_and(|read| read.is_ok())
    }
}

impl Body for RequestBody {
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
