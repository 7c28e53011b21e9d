// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PROXY protocol on our connections: hearing from a sender whom it speaks for, and telling a
//! destination the same.

use crate::config::settings::SendProxy;
use longhaul_protocol::failure::Failure;
use longhaul_protocol::proxy_protocol::{Header, encode_v1, encode_v2, missing, parse};
use longhaul_transport::{carrier::Carrier, channel::read_some};
use std::net::SocketAddr;

/// Reads the header that a connection begins with, and not a byte more.
pub(crate) async fn read(stream: &Carrier) -> Result<Header, Failure> {
    let mut bytes = Vec::new();
    loop {
        match missing(&bytes).map_err(|_| Failure::BadRequest)? {
            0 => break,
            more => match read_some(stream, &mut bytes, more).await {
                Ok(1..) => {}
                _ => return Err(Failure::ClientGone),
            },
        }
    }
    match parse(&bytes) {
        Ok(Some((header, _))) => Ok(header),
        _ => Err(Failure::BadRequest),
    }
}

/// The header for a destination: who the client is and where it came in.
pub(crate) fn write(version: SendProxy, client: SocketAddr, entrance: SocketAddr) -> Vec<u8> {
    match version {
        SendProxy::V1 => encode_v1(client, entrance),
        SendProxy::V2 => encode_v2(client, entrance),
    }
}
