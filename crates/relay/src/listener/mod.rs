// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each kind of listener knows: how its clients say where to go, and how they are answered.

pub(crate) mod convert;
mod ftp;
pub(crate) mod http;
pub(crate) mod language;
pub(crate) mod socks5;
pub(crate) mod tunnel;

use crate::{
    config::listener::Kind,
    listener::{
        language::{Asked, Heard, Language, Rejection, farewell, hear, local_address, reject},
        tunnel::{open, relay},
    },
    route::{request::Request, set_dscp},
    session::Session,
    transfer::End,
};
use longhaul_linux::socket::{is_local_address, syn_dscp};
use longhaul_protocol::{convert::Answer, destination::Destination, failure::Failure};
use std::net::SocketAddr;

/// Serves a client that says once where to go, or not at all.
pub(crate) async fn serve(session: &Session, kind: &Kind) -> End {
    // In a box, as everything that is over before bytes are relayed: an idle connection is as large
    // as the largest state that its future may be in.
    let opened = Box::pin(async { open(session, hear_out(session, kind).await?).await });
    match opened.await {
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
        Kind::Forward(destination) => Ok(forwarded(destination)),
        Kind::Transparent { keep_source } => diverted(session, *keep_source),
        Kind::Socks5 | Kind::Http => unreachable!("these have more to say"),
    };
    match asked {
        Ok(asked) => Ok(asked),
        Err(rejected) => Err(reject(session, rejected).await),
    }
}

/// Clients that all go to one place.
fn forwarded(destination: &Destination) -> Asked {
    Asked {
        request: Request::to(destination.clone(), Vec::new()).unanswered(),
        language: Language::Tcp,
    }
}

/// Clients that know nothing of the relay: TPROXY diverted their connections, and the accepted
/// socket's local address is where they wanted to go
/// (Documentation/networking/tproxy.rst).
fn diverted(session: &Session, keep_source: bool) -> Result<Asked, Rejection> {
    let wanted = local_address(&session.client)?;
    if is_own_port(wanted, session.door.address) {
        return Err(Rejection::new(Failure::NotAllowed, []));
    }
    let dscp = session.client.tcp().and_then(syn_dscp).unwrap_or(0);
    set_dscp(&session.near(), &session.listener.profile, dscp);
    let request = Request {
        dscp,
        source: keep_source.then_some(session.client_address),
        ..Request::to(Destination::from_ip(wanted.ip(), wanted.port()), Vec::new()).unanswered()
    };
    Ok(Asked {
        request,
        language: Language::Tcp,
    })
}

/// Whether the client connected straight to the listener: relayed, the connection would come back
/// here without end. In doubt, yes.
fn is_own_port(wanted: SocketAddr, listener: SocketAddr) -> bool {
    wanted.port() == listener.port() && is_local_address(wanted.ip()).unwrap_or(true)
}
