// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients have asked for, how that is read, and how they are answered.

use crate::{
    faults::fault::Fault,
    route::{far::Far, request::Request},
    session::Session,
    stripe::groups::Seat,
    transfer::End,
};
use longhaul_protocol::{convert::Answer, failure::Failure, socks4, socks5::Reply};
use longhaul_transport::{
    carrier::Carrier,
    channel::{Channel, read_some, write_all},
    leg::Leg,
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::timeout;

/// What a listener makes of a client: what it wants, and the words to answer it.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) language: Language,
}

/// What another relay has said.
pub(crate) enum Heard {
    Asks(Asked),
    /// It is a further leg of a connection that was asked for before.
    Joins(Seat),
    /// Only whether it would be served.
    Checks,
}

/// What a client has sent and no parser has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

/// Bytes asked for in one read of a handshake: a request and some early data.
const READ_LEN: usize = 4096;

impl Inbox {
    /// Reads until `parse` has a whole message, and takes it out. A message that the parser calls
    /// incomplete although more than `len_max` bytes are there is a bad request.
    pub(crate) async fn message<T, E>(
        &mut self,
        stream: &impl Channel,
        len_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, Unread<E>> {
        loop {
            if let Some((message, len)) = parse(&self.0).map_err(Unread::Malformed)? {
                self.0.drain(..len);
                return Ok(message);
            }
            if self.0.len() >= len_max {
                return Err(Unread::Failed(Failure::BadRequest));
            }
            match read_some(stream, &mut self.0, READ_LEN).await {
                Ok(1..) => {}
                _ => return Err(Unread::Failed(Failure::ClientGone)),
            }
        }
    }

    /// What no message was found in.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.0
    }

    /// What came behind the last message.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.0
    }
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Unread<E> {
    /// The parser says so.
    Malformed(E),
    /// The client left, or never came to an end.
    Failed(Failure),
}

/// How success and failure are said.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Language {
    /// SOCKS5 replies.
    Socks5,
    /// The answers of SOCKS4.
    Socks4,
    /// Convert answers.
    Convert,
    /// None: relayed bytes, or RST.
    Tcp,
}

impl Language {
    pub(crate) fn success(self, far: &Far) -> Vec<u8> {
        match self {
            // RFC 1928 §6: it carries the outgoing leg's own address.
            Self::Socks5 | Self::Socks4 => {
                self.reply(Reply::Succeeded, far.stream.carrier().local_addr().ok())
            }
            Self::Convert => Answer::Accepted.encode(),
            Self::Tcp => Vec::new(),
        }
    }

    pub(crate) fn failure(self, fault: &Fault) -> Vec<u8> {
        match self {
            Self::Socks5 | Self::Socks4 => self.reply(fault.socks5(), None),
            Self::Convert => fault.convert(),
            Self::Tcp => Vec::new(),
        }
    }

    /// A reply of SOCKS, of either version.
    pub(crate) fn reply(self, reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Socks4 => socks4::reply(reply, bound),
            _ => reply.encode(bound),
        }
    }

    /// For a request of SOCKS that can't be met.
    pub(crate) fn rejection(self, failure: Failure) -> Rejection {
        Rejection::new(failure, self.reply(failure.socks5(), None))
    }

    /// For a command of SOCKS that is not served, here or on this way out.
    pub(crate) fn unsupported(self) -> Rejection {
        let reply = self.reply(Reply::CommandNotSupported, None);
        Rejection::new(Failure::BadRequest, reply)
    }
}

/// A client that gets no connection.
pub(crate) struct Rejection {
    pub(crate) failure: Failure,
    /// The last words; none means RST.
    pub(crate) answer: Vec<u8>,
}

impl Rejection {
    pub(crate) fn new(failure: Failure, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self { failure, answer }
    }

    /// For messages that were not understood, with the answer to a malformed one.
    pub(crate) fn unread<E>(unread: Unread<E>, answer: impl FnOnce(&E) -> Vec<u8>) -> Self {
        match unread {
            Unread::Malformed(error) => Self::new(Failure::BadRequest, answer(&error)),
            Unread::Failed(failure) => Self::new(failure, []),
        }
    }
}

/// Tells the client in its own words.
pub(crate) async fn refuse(session: &Session, fault: Fault, language: Language) -> End {
    Box::pin(farewell(&session.near(), &language.failure(&fault))).await;
    session.fail(fault)
}

/// What the client wants, if it says so before the handshake time-out.
pub(crate) async fn hear<T>(
    session: &Session,
    asking: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let limit = session.config.limits.handshake_timeout;
    let late = |_| Err(Rejection::new(Failure::HandshakeTimeout, []));
    let asked = Box::pin(timeout(limit, asking)).await;
    asked.unwrap_or_else(late)
}

pub(crate) async fn reject(session: &Session, rejected: Rejection) -> End {
    let Rejection { failure, answer } = rejected;
    Box::pin(farewell(&session.near(), &answer)).await;
    session.fail(failure)
}

/// How long a client may take to hear its refusal. RFC 1928 §6 allows 10 s.
pub(crate) const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// What is read of what it still sends, in bytes.
const FAREWELL_BYTES_MAX: usize = 1 << 20;

/// Says `answer` and lets the client close first: a close with unread bytes would send RST, which
/// can destroy the answer on its way. Without an answer, RST is the answer.
pub(crate) async fn farewell(client: &Leg, answer: &[u8]) {
    if answer.is_empty() {
        client.carrier().reset_on_close();
        return;
    }
    let say = async {
        write_all(client, answer).await?;
        client.finish_sending().await?;
        read_off(client).await
    };
    // Whatever goes wrong, the client is gone, and so is the need to tell it.
    let _ = timeout(FAREWELL_TIME, say).await;
}

/// Lets a client close first that has its answer, and may still be sending.
pub(crate) async fn linger(client: &Leg) {
    let _ = timeout(FAREWELL_TIME, read_off(client)).await;
}

async fn read_off(client: &Leg) -> std::io::Result<()> {
    let mut heard = Vec::new();
    let mut total = 0;
    while total < FAREWELL_BYTES_MAX {
        heard.clear();
        match read_some(client, &mut heard, 1 << 16).await? {
            0 => break,
            read => total += read,
        }
    }
    Ok(())
}

/// The address of this end of the client's connection.
pub(crate) fn local_address(client: &Carrier) -> Result<SocketAddr, Rejection> {
    client
        .local_addr()
        .map_err(|_| Rejection::new(Failure::ClientGone, []))
}
