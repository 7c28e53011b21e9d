// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocols of clients: how each kind of listener reads requests and replies to them.

pub(crate) mod convert;
mod ftp;
pub(crate) mod http;
pub(crate) mod language;
pub(crate) mod socks5;
pub(crate) mod tunnel;

use crate::{
    client_protocols::{
        language::{Asked, Heard, Language, Rejection, farewell, hear, local_address, reject},
        tunnel::{open, relay},
    },
    config::listener::Kind,
    route::{request::Request, set_dscp},
    session::Session,
    transfer::End,
};
use longhaul_linux::socket::{is_local_address, syn_dscp};
use longhaul_protocol::{convert::Answer, destination::Destination, failure::Failure};
use std::net::SocketAddr;

/// Serves a client with one request, or with a destination that its listener implies.
pub(crate) async fn serve(session: &Session, kind: &Kind) -> End {
    // Boxed, like every step that ends before bytes are relayed: an idle connection occupies as
    // much memory as the largest state of its future.
    let opened = Box::pin(async { open(session, hear_out(session, kind).await?).await });
    match opened.await {
        Ok(opened) => relay(session, opened).await,
        Err(end) => end,
    }
}

/// Reads or derives the client's request. Relays must send theirs within the handshake time-out;
/// forwarded and diverted clients send none.
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
        Kind::Socks5 | Kind::Http => unreachable!("these protocols have their own loops"),
    };
    match asked {
        Ok(asked) => Ok(asked),
        Err(rejected) => Err(reject(session, rejected).await),
    }
}

/// Request of a client of a forward listener: the configured destination.
fn forwarded(destination: &Destination) -> Asked {
    Asked {
        request: Request::to(destination.clone(), Vec::new()).unanswered(),
        language: Language::Tcp,
    }
}

/// Request of a client that does not know of the relay: TPROXY diverted its connection, and the
/// local address of the accepted socket is the destination (Documentation/networking/tproxy.rst).
fn diverted(session: &Session, keep_source: bool) -> Result<Asked, Rejection> {
    let wanted = local_address(&session.client)?;
    if is_own_port(wanted, session.listener.address) {
        return Err(Rejection::new(Failure::NotAllowed, []));
    }
    let dscp = session.client.tcp().and_then(syn_dscp).unwrap_or(0);
    set_dscp(&session.near(), &session.listener_config.profile, dscp);
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

/// Whether the client connected to the listener itself: relayed, the connection would come back
/// here in a loop. If unknown, true.
fn is_own_port(wanted: SocketAddr, listener: SocketAddr) -> bool {
    wanted.port() == listener.port() && is_local_address(wanted.ip()).unwrap_or(true)
}
