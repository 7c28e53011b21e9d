// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocols of clients: how each kind of listener reads requests and replies to them.

pub(crate) mod convert;
mod ftp;
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod socks5;
pub(crate) mod tunnel;

use crate::{
    client_protocols::{
        handshake::{
            ParsedRequest, PeerMessage, Rejection, ReplyFormat, local_address, reject,
            reply_and_close, with_handshake_timeout,
        },
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
    let tunnel = Box::pin(async { open(session, read_request(session, kind).await?).await });
    match tunnel.await {
        Ok(tunnel) => relay(session, tunnel).await,
        Err(end) => end,
    }
}

/// Reads or derives the client's request. Relays must send theirs within the handshake time-out;
/// forwarded and diverted clients send none.
async fn read_request(session: &Session, kind: &Kind) -> Result<ParsedRequest, End> {
    let parsed = match kind {
        Kind::Convert => {
            Box::pin(convert::await_request(session)).await?;
            match with_handshake_timeout(session, convert::read_message(session)).await {
                Ok(PeerMessage::Request(parsed)) => Ok(parsed),
                Ok(PeerMessage::Join(ticket)) => return Err(End::Joined(ticket)),
                Ok(PeerMessage::HealthCheck) => {
                    let reply = Answer::Accepted.encode();
                    Box::pin(reply_and_close(&session.client_leg(), &reply)).await;
                    return Err(End::Finished);
                }
                Err(rejection) => Err(rejection),
            }
        }
        Kind::Forward(destination) => Ok(forward_request(destination)),
        Kind::Transparent { keep_source } => transparent_request(session, *keep_source),
        Kind::Socks5 | Kind::Http => unreachable!("these protocols have their own loops"),
    };
    match parsed {
        Ok(parsed) => Ok(parsed),
        Err(rejection) => Err(reject(session, rejection).await),
    }
}

/// Request of a client of a forward listener: the configured destination.
fn forward_request(destination: &Destination) -> ParsedRequest {
    ParsedRequest {
        request: Request::to(destination.clone(), Vec::new()).with_longest_reply_delay(),
        reply_format: ReplyFormat::Tcp,
    }
}

/// Request of a client that does not know of the relay: TPROXY diverted its connection, and the
/// local address of the accepted socket is the destination (Documentation/networking/tproxy.rst).
fn transparent_request(session: &Session, keep_source: bool) -> Result<ParsedRequest, Rejection> {
    let destination = local_address(&session.client.stream)?;
    if is_own_port(destination, session.listener.address) {
        return Err(Rejection::new(Failure::NotAllowed, []));
    }
    let dscp = session.client.stream.tcp().and_then(syn_dscp).unwrap_or(0);
    set_dscp(
        &session.client_leg(),
        &session.setup.listener_config.profile,
        dscp,
    );
    let request = Request {
        dscp,
        source: keep_source.then_some(session.client.address),
        ..Request::to(
            Destination::from_ip(destination.ip(), destination.port()),
            Vec::new(),
        )
        .with_longest_reply_delay()
    };
    Ok(ParsedRequest {
        request,
        reply_format: ReplyFormat::Tcp,
    })
}

/// Whether the client connected to the listener itself: relayed, the connection would come back
/// here in a loop. If unknown, true.
fn is_own_port(destination: SocketAddr, listener: SocketAddr) -> bool {
    destination.port() == listener.port() && is_local_address(destination.ip()).unwrap_or(true)
}
