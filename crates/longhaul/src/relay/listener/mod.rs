// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each kind of listener knows: how its clients say where to go, and how they are answered.

mod convert;
mod forward;
pub(super) mod http;
pub(super) mod socks5;
mod transparent;

use super::{
    config::Kind,
    failure::Failure,
    leg::Leg,
    route::{Far, Request},
    session::Session,
    stream::{Unread, read_some, write_all},
    stripe::Seat,
    transfer::End,
};
use host::socket::reset_on_close;
use std::{net::SocketAddr, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// What a listener makes of a client: what it wants, and the words to answer it.
struct Asked {
    request: Request,
    language: Language,
}

/// What a client has said.
enum Heard {
    Asks(Asked),
    /// It is a further leg of a connection that was asked for before.
    Joins(Seat),
}

/// How success and failure are said.
#[derive(Debug, Clone, Copy)]
enum Language {
    /// SOCKS5 replies.
    Socks5,
    /// Convert answers.
    Convert,
    /// None: relayed bytes, or RST.
    Tcp,
}

impl Language {
    fn success(self, far: &Far) -> Vec<u8> {
        match self {
            Self::Socks5 => socks5::success(far.stream.socket().local_addr().ok()),
            Self::Convert => wire::convert::Answer::Accepted.encode(),
            Self::Tcp => Vec::new(),
        }
    }

    fn failure(self, failure: Failure) -> Vec<u8> {
        match self {
            Self::Socks5 => failure.socks5().encode(None),
            Self::Convert => failure.convert().encode(),
            Self::Tcp => Vec::new(),
        }
    }
}

/// A client that gets no connection.
struct Rejected {
    failure: Failure,
    /// The last words; none means RST.
    answer: Vec<u8>,
}

impl Rejected {
    fn new(failure: Failure, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self { failure, answer }
    }

    /// For messages that were not understood, with the answer to a malformed one.
    fn unread<E>(unread: Unread<E>, answer: impl FnOnce(&E) -> Vec<u8>) -> Self {
        match unread {
            Unread::Malformed(error) => Self::new(Failure::BadRequest, answer(&error)),
            Unread::Failed(failure) => Self::new(failure, []),
        }
    }
}

/// Serves a client that says once where to go, or not at all.
pub(super) async fn serve(session: &Session, kind: &Kind) -> End {
    if *kind == Kind::Convert
        && let Err(end) = Box::pin(convert::await_request(session)).await
    {
        return end;
    }
    match hear(session, ask(session, kind)).await {
        Ok(Heard::Asks(Asked { request, language })) => connect(session, request, language).await,
        Ok(Heard::Joins(seat)) => End::Joined(seat),
        Err(rejected) => reject(session, rejected).await,
    }
}

/// What the client wants, if it says so before the handshake time-out.
async fn hear<T>(
    session: &Session,
    asking: impl Future<Output = Result<T, Rejected>>,
) -> Result<T, Rejected> {
    let limit = session.config.limits.handshake_timeout;
    let late = |_| Err(Rejected::new(Failure::HandshakeTimeout, []));
    let asked = Box::pin(timeout(limit, asking)).await;
    asked.unwrap_or_else(late)
}

async fn reject(session: &Session, rejected: Rejected) -> End {
    let Rejected { failure, answer } = rejected;
    Box::pin(farewell(&session.near(), &answer)).await;
    session.fail(failure)
}

async fn ask(session: &Session, kind: &Kind) -> Result<Heard, Rejected> {
    match kind {
        Kind::Convert => convert::ask(session).await,
        Kind::Forward(destination) => Ok(Heard::Asks(forward::ask(destination))),
        Kind::Transparent { keep_source } => {
            transparent::ask(session, *keep_source).map(Heard::Asks)
        }
        Kind::Socks5 | Kind::Http => unreachable!("these have more to say"),
    }
}

async fn connect(session: &Session, mut request: Request, language: Language) -> End {
    request.may_stripe = true;
    let opened = session.open(&request).await;
    // They have left: an idle connection need not keep their buffer, and a request that had any is
    // not made twice, unless the peer refuses to read it.
    let mut early = std::mem::take(&mut request.early);
    if !opened.as_ref().is_ok_and(|far| far.group.is_some()) {
        early = Vec::new();
    }
    let mut tried = attempt(session, opened, language).await;
    if let Attempt::Stale = tried {
        tried = attempt(session, session.open_anew(&request).await, language).await;
    }
    if let Attempt::Unstriped(heard) = tried {
        (request.early, request.may_stripe) = ([early, heard].concat(), false);
        tried = attempt(session, session.open_unstriped(&request).await, language).await;
    }
    let Attempt::Ended(end) = tried else {
        unreachable!("only a connection that stood ready is stale");
    };
    if let End::Failed(failure) = end {
        Box::pin(farewell(&session.near(), &language.failure(failure))).await;
        return session.fail(failure);
    }
    end
}

/// What became of one way out.
enum Attempt {
    Ended(End),
    /// It was dead before it was asked; nothing is lost.
    Stale,
    /// The peer knows no groups; what the client has sent since is here.
    Unstriped(Vec<u8>),
}

async fn attempt(session: &Session, opened: Result<Far, Failure>, language: Language) -> Attempt {
    let far = match opened {
        Ok(far) => far,
        Err(failure) => return Attempt::Ended(End::Failed(failure)),
    };
    let end = session.transfer(&far, &language.success(&far)).await;
    match end {
        End::Failed(_) if far.was_stale() => Attempt::Stale,
        End::Failed(failure) => match far.take_back() {
            Some(heard) => Attempt::Unstriped(heard),
            None => Attempt::Ended(End::Failed(failure)),
        },
        end => Attempt::Ended(end),
    }
}

/// How long a client may take to hear its refusal. RFC 1928 §6 allows 10 s.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// What is read of what it still sends, in bytes.
const FAREWELL_BYTES_MAX: usize = 1 << 20;

/// Says `answer` and lets the client close first: a close with unread bytes would send RST, which
/// can destroy the answer on its way. Without an answer, RST is the answer.
async fn farewell(client: &Leg, answer: &[u8]) {
    if answer.is_empty() {
        // An error here means that the socket has lost its connection already.
        let _ = reset_on_close(client);
        return;
    }
    let say = async {
        write_all(client, answer).await?;
        client.finish_sending().await?;
        let mut heard = Vec::new();
        let mut total = 0;
        while total < FAREWELL_BYTES_MAX {
            heard.clear();
            match read_some(client, &mut heard, 1 << 16).await? {
                0 => break,
                read => total += read,
            }
        }
        std::io::Result::Ok(())
    };
    // Whatever goes wrong, the client is gone, and so is the need to tell it.
    let _ = timeout(FAREWELL_TIME, say).await;
}

/// The address of this end of the client's connection.
fn local_address(client: &TcpStream) -> Result<SocketAddr, Rejected> {
    client
        .local_addr()
        .map_err(|_| Rejected::new(Failure::ClientGone, []))
}
