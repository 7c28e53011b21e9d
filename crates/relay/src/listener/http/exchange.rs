// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the exchange of messages with a client stands, for what hyper's server does not do: interim responses that
//! are the origin's, trailers that nobody has announced, refusals with a reason.

use crate::session::http_memory::HEAD_LEN_MAX;
use hyper::{Request, StatusCode, Version, body::Body};
use longhaul_protocol::proxy_headers::waits_for_100;
use parking_lot::Mutex;
use std::{
    mem::take,
    task::{Context, Poll, Waker},
};

/// What hyper writes by itself when somebody begins to read a body that its client holds back.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// One client's.
#[derive(Debug, Default)]
pub(crate) struct Exchange(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    turn: Turn,
    /// The client waits for 100, and has neither that nor a response.
    held_back: bool,
    /// hyper has bytes of a message that are not out.
    unflushed: bool,
    /// What comes behind the head that was read last, until the reader knows.
    body: Option<Framing>,
    /// The client may still be sending the last request.
    unread: bool,
    /// The client understands chunks.
    chunks: bool,
    /// What is to be written before anything else.
    out: Vec<u8>,
    /// In place of the end of a response.
    trailers: Option<Vec<u8>>,
    refusal: Option<(StatusCode, Option<String>)>,
    /// Of the task that serves the client, and whether it waits for a flush.
    waker: Option<(Waker, bool)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The client's, to ask. If hyper says something, it is a refusal.
    #[default]
    Client,
    /// The origin's, which has not answered.
    Origin,
    /// The response is on its way.
    Response,
}

/// How the reader finds the end of a request's body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    Length(u64),
    /// By its chunks.
    Chunked,
}

impl Exchange {
    /// hyper has understood a head.
    pub(super) fn begin(&self, request: &Request<impl Body>) {
        let (version, hint) = (request.version(), request.body().size_hint());
        let mut state = self.0.lock();
        // An old client knows no interim responses.
        state.chunks = version == Version::HTTP_11;
        state.turn = match state.chunks && !state.unflushed {
            true => Turn::Origin,
            false => Turn::Response,
        };
        let empty = request.body().is_end_stream();
        state.held_back = !empty && waits_for_100(version, request.headers());
        state.unread = !empty;
        state.body = Some(hint.exact().map_or(Framing::Chunked, Framing::Length));
        state.trailers = None;
    }

    /// Something that goes to the client before the response.
    pub(crate) fn interim(&self, head: &[u8]) {
        let mut state = self.0.lock();
        state.held_back &= !head.starts_with(b"HTTP/1.1 100 ");
        if state.turn == Turn::Origin && state.out.len() < HEAD_LEN_MAX {
            state.out.extend(head);
            state.wake();
        }
    }

    /// The client may send its body, if it waits to be told.
    pub(crate) fn invite_body(&self) {
        if self.is_held_back() {
            self.interim(CONTINUE);
        }
    }

    /// Whether the client may still not have sent its body.
    pub(super) fn is_held_back(&self) -> bool {
        self.0.lock().held_back
    }

    /// Something of the body has come, whoever was waited for.
    pub(super) fn body_comes(&self) {
        self.0.lock().held_back = false;
    }

    /// The last request has been read to its end.
    pub(super) fn has_read_all(&self) {
        self.0.lock().unread = false;
    }

    pub(super) fn is_unread(&self) -> bool {
        self.0.lock().unread
    }

    /// The response's body ends with them.
    pub(super) fn set_trailers(&self, end: Vec<u8>) {
        let mut state = self.0.lock();
        state.trailers = state.chunks.then_some(end);
    }

    pub(super) fn has_trailers(&self) -> bool {
        self.0.lock().trailers.is_some()
    }

    pub(super) fn take_trailers(&self) -> Vec<u8> {
        self.0.lock().trailers.take().unwrap_or_default()
    }

    /// The client gets this in place of what hyper would say, and then no more.
    pub(super) fn refuse(&self, status: StatusCode, reason: Option<String>) {
        self.0.lock().refusal.get_or_insert((status, reason));
    }

    /// The same if no response is on its way, since the body that the client sends is malformed.
    pub(super) fn refuse_body(&self) {
        if self.turn() == Turn::Origin {
            let reason = "the request's body can't be read: chunks are HEX-LENGTH CRLF DATA CRLF, then 0 CRLF, trailers \
                          (NAME: VALUE CRLF) and CRLF (RFC 9112 §7.1)";
            self.refuse(StatusCode::BAD_REQUEST, Some(reason.to_owned()));
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.lock().refusal.is_some()
    }

    pub(super) fn take_refusal(&self) -> Option<(StatusCode, Option<String>)> {
        self.0.lock().refusal.take()
    }

    pub(super) fn turn(&self) -> Turn {
        self.0.lock().turn
    }

    /// Bytes of a response are on their way.
    pub(super) fn responds(&self) {
        let mut state = self.0.lock();
        state.turn = Turn::Response;
        state.unflushed = true;
    }

    pub(super) fn take_out(&self) -> Vec<u8> {
        take(&mut self.0.lock().out)
    }

    /// All that hyper has given is out. Whoever has something to say later finds the task to wake.
    pub(super) fn flushed(&self, cx: &Context<'_>) {
        let mut state = self.0.lock();
        state.unflushed = false;
        let waited = state.waker.take().is_some_and(|(_, waits)| waits);
        state.waker = Some((cx.waker().clone(), false));
        if waited {
            state.wake();
        }
    }

    pub(super) fn take_body(&self) -> Option<Framing> {
        self.0.lock().body.take()
    }

    /// Ready once the response before is out: then it is the client's turn.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.unflushed {
            state.waker = Some((cx.waker().clone(), true));
            return Poll::Pending;
        }
        state.turn = Turn::Client;
        Poll::Ready(())
    }
}

impl State {
    fn wake(&self) {
        if let Some((waker, _)) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
