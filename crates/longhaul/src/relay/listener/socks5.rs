// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS5 clients (RFC 1928): CONNECT without authentication.

use super::{Asked, Language, Rejected};
use crate::relay::{
    failure::Failure,
    route::Request,
    stream::{Inbox, write_all},
};
use std::net::SocketAddr;
use tokio::net::TcpStream;
use wire::socks5::{
    Command, MESSAGE_LEN_MAX, Method, Reply, Socks5Error, parse_greeting, parse_request,
};

pub(super) async fn ask(client: &TcpStream) -> Result<Asked, Rejected> {
    let mut inbox = Inbox::default();
    let method = inbox
        .message(client, MESSAGE_LEN_MAX, parse_greeting)
        .await
        .map_err(|unread| Rejected::unread(unread, answer))?;
    if method == Method::NoneAcceptable {
        return Err(Rejected::new(Failure::NotAllowed, method.encode()));
    }
    write_all(client, &method.encode())
        .await
        .map_err(|_| Rejected::new(Failure::ClientGone, []))?;
    let request = inbox
        .message(client, MESSAGE_LEN_MAX, parse_request)
        .await
        .map_err(|unread| Rejected::unread(unread, answer))?;
    if request.command != Command::Connect {
        let reply = Reply::CommandNotSupported.encode(None);
        return Err(Rejected::new(Failure::BadRequest, reply));
    }
    Ok(Asked {
        request: Request::to(request.destination, inbox.into_rest()),
        language: Language::Socks5,
    })
}

/// The reply that carries the outgoing leg's own address (RFC 1928 §6).
pub(super) fn success(bound: Option<SocketAddr>) -> Vec<u8> {
    Reply::Succeeded.encode(bound)
}

fn answer(error: &Socks5Error) -> Vec<u8> {
    error
        .reply()
        .map(|reply| reply.encode(None))
        .unwrap_or_default()
}
