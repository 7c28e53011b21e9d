// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that know nothing of the relay: TPROXY diverted their connections, and the accepted
//! socket's local address is where they wanted to go
//! (Documentation/networking/tproxy.rst).

use crate::{
    listener::{Asked, Language, Rejected, local_address},
    route::request::Request,
    session::Session,
};
use longhaul_linux::socket::is_local_address;
use longhaul_protocol::destination::Destination;
use longhaul_protocol::failure::Failure;
use std::net::SocketAddr;

pub(super) fn ask(session: &Session, keep_source: bool) -> Result<Asked, Rejected> {
    let wanted = local_address(&session.client)?;
    if is_own_port(wanted, session.door.address) {
        return Err(Rejected::new(Failure::NotAllowed, []));
    }
    let request = Request {
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
