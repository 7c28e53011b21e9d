// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each kind of listener knows: how its clients say where to go, and how they are answered.

pub(crate) mod answered;
mod convert;
mod first_head;
mod forward;
pub(super) mod http;
pub(super) mod socks5;
mod transparent;

use crate::{
    config::listener::Kind,
    faults::fault::Fault,
    leg::{Leg, inbox::Unread},
    route::{far::Far, request::Request},
    session::Session,
    stripe::groups::Seat,
    transfer::End,
};
use longhaul_protocol::convert::Answer;
use longhaul_protocol::failure::Failure;
use longhaul_transport::{
    carrier::Carrier,
    channel::{read_some, write_all},
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::timeout;

/// What a listener makes of a client: what it wants, and the words to answer it.
struct Asked {
    request: Request,
    language: Language,
}

/// What another relay has said.
enum Heard {
    Asks(Asked),
    /// It is a further leg of a connection that was asked for before.
    Joins(Seat),
    /// Only whether it would be served.
    Checks,
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
            Self::Socks5 => socks5::success(far.stream.carrier().local_addr().ok()),
            Self::Convert => Answer::Accepted.encode(),
            Self::Tcp => Vec::new(),
        }
    }

    fn failure(self, fault: &Fault) -> Vec<u8> {
        match self {
            Self::Socks5 => fault.socks5().encode(None),
            Self::Convert => fault.convert(),
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

/// A client with a way out.
struct Opened {
    far: Far,
    language: Language,
    /// For the way out that turns out to have been dead.
    again: Option<Box<Request>>,
}

/// Serves a client that says once where to go, or not at all.
pub(super) async fn serve(session: &Session, kind: &Kind) -> End {
    // In a box, as everything that is over before bytes are relayed: an idle connection is as large
    // as the largest state that its future may be in.
    let opened = Box::pin(async { open(session, hear_out(session, kind).await?).await });
    match opened.await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// Opens the way out, and relays.
async fn connect(session: &Session, asked: Asked) -> End {
    match Box::pin(open(session, asked)).await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// What the client wants. Those who speak to another relay have a time to say it; those who speak
/// to none have said it by coming here.
async fn hear_out(session: &Session, kind: &Kind) -> Result<Asked, End> {
    let asked = match kind {
        Kind::Convert => {
            Box::pin(convert::await_request(session)).await?;
            match hear(session, convert::ask(session)).await {
                Ok(Heard::Asks(asked)) => Ok(asked),
                Ok(Heard::Joins(seat)) => return Err(End::Joined(seat)),
                Ok(Heard::Checks) => {
                    let yes = Answer::Accepted.encode();
                    Box::pin(farewell(&session.near(), &yes)).await;
                    return Err(End::Finished);
                }
                Err(rejected) => Err(rejected),
            }
        }
        Kind::Forward(destination) => Ok(forward::ask(destination)),
        Kind::Transparent { keep_source } => transparent::ask(session, *keep_source),
        Kind::Socks5 | Kind::Http => unreachable!("these have more to say"),
    };
    match asked {
        Ok(asked) => Ok(asked),
        Err(rejected) => Err(reject(session, rejected).await),
    }
}

/// Relays over the way out that was opened, or over another if that was dead.
async fn relay(session: &Session, mut opened: Box<Opened>) -> End {
    loop {
        let (far, language) = (&opened.far, opened.language);
        let end = session.transfer(far, language.success(far)).await;
        let End::Failed(fault) = end else {
            return end;
        };
        match Box::pin(another_way(session, &mut opened)).await {
            Some(Ok(far)) => opened.far = far,
            Some(Err(fault)) => return refuse(session, fault, language).await,
            None => return refuse(session, fault, language).await,
        }
    }
}

/// Makes the request again, if that does no harm: over a connection that did not stand ready, over one
/// leg to a peer that has refused to read a request for several, or past a peer that is down now.
async fn another_way(session: &Session, opened: &mut Opened) -> Option<Result<Far, Fault>> {
    let (far, request) = (&opened.far, opened.again.as_mut()?);
    if far.was_stale() {
        request.may_stripe = false;
        return Some(session.open_anew(request).await);
    }
    if let Some(heard) = far.take_back() {
        request.may_stripe = false;
        request.early.extend(heard);
        return Some(session.open_unstriped(request).await);
    }
    match session.has_other_way(far, request).await {
        true => Some(session.open_anew(request).await),
        false => None,
    }
}

/// Opens the way out.
async fn open(session: &Session, asked: Asked) -> Result<Box<Opened>, End> {
    let Asked {
        mut request,
        language,
    } = asked;
    request.may_stripe = true;
    let far = match session.open(&request).await {
        Ok(far) => far,
        Err(fault) => return Err(refuse(session, fault, language).await),
    };
    // They have left, and a request that had any is not made twice, unless a peer refuses to read
    // it, which has it in pieces.
    let striped = far.group.is_some();
    if !striped {
        request.early = Vec::new();
    }
    let again = far.peer.is_some().then(|| request.into());
    Ok(Box::new(Opened {
        far,
        language,
        again,
    }))
}

/// Tells the client in its own words.
async fn refuse(session: &Session, fault: Fault, language: Language) -> End {
    Box::pin(farewell(&session.near(), &language.failure(&fault))).await;
    session.fail(fault)
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

/// How long a client may take to hear its refusal. RFC 1928 §6 allows 10 s.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// What is read of what it still sends, in bytes.
const FAREWELL_BYTES_MAX: usize = 1 << 20;

/// Says `answer` and lets the client close first: a close with unread bytes would send RST, which
/// can destroy the answer on its way. Without an answer, RST is the answer.
async fn farewell(client: &Leg, answer: &[u8]) {
    if answer.is_empty() {
        client.carrier().reset_on_close();
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
fn local_address(client: &Carrier) -> Result<SocketAddr, Rejected> {
    client
        .local_addr()
        .map_err(|_| Rejected::new(Failure::ClientGone, []))
}
